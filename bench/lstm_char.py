"""The text generator of the reference workloads against PyTorch, torch.compile and JAX: a step, a text, and training.

lstm_char is one step from Python: a character's row of a [96, 128] table, two LSTM layers of 512, [512, 96], times
1 / temperature, softmax; batch 1, the state kept on the device. lstm_char_write draws 200 characters in one call where
the library has loops; lstm_char_train is a step of Adam with clipped gradients on 32 windows of 64 characters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import common  # first: it sets the thread counts of the peers
import numpy as np

ALPHABET, EMBEDDING, HIDDEN = 96, 128, 512
LENGTH, TEMPERATURE = 200, 0.7
BATCH, WINDOW, RATE, MAX_NORM = 32, 64, 2e-3, 1.0


def parameters() -> dict[str, np.ndarray]:
    """Parameters by name: LSTM weights are [4 * 512, features], the output is [512, 96]."""
    random = np.random.default_rng(1)
    shapes = {"embedding": (ALPHABET, EMBEDDING), "output": (HIDDEN, ALPHABET)}
    for layer, features in enumerate((EMBEDDING, HIDDEN)):
        shapes |= {f"lstm{layer}.input": (4 * HIDDEN, features), f"lstm{layer}.recurrent": (4 * HIDDEN, HIDDEN)}
        shapes[f"lstm{layer}.bias"] = (4 * HIDDEN,)
    deviation = np.float32(HIDDEN**-0.5)
    return {name: deviation * random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def turned(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with LSTM weights as [features, 4 * 512]: both peers are several times faster so in single steps."""
    matrices = {name: np.ascontiguousarray(value.T) for name, value in values.items() if value.shape[0] == 4 * HIDDEN}
    return values | matrices


def read_bytes() -> int:
    """What each step has to read: all parameters, but a single row of the table."""
    values = parameters()
    return sum(value.nbytes for value in values.values()) - values["embedding"].nbytes + 4 * EMBEDDING


def windows() -> np.ndarray:
    return np.random.default_rng(2).integers(0, ALPHABET, (WINDOW + 1, BATCH)).astype(np.int32)


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts
    from topstitch.examples.lstm_char import CharacterModel, Network, Writer, assignments, state_variables

    graph = ts.Graph()
    network = Network({name: graph.constant(value) for name, value in parameters().items()})
    code = graph.placeholder((1,), dtype=ts.int32)
    temperature = graph.placeholder(())
    states = state_variables(graph, 1, HIDDEN)
    logits, after = network.step(code, states)
    probabilities = ts.softmax(logits * (1 / temperature), axis=-1)
    types = {code: ts.ShapedType((1,), ts.int32), temperature: ts.ShapedType(())}
    step = graph.compile(types, probabilities, assignments(states, after))
    one, scale = np.zeros(1, np.int32), np.float32(TEMPERATURE)
    yield "lstm_char", {"topstitch": lambda: np.asarray(step.run(one, scale))}

    writer = Writer(parameters(), seed=0)
    yield "lstm_char_write", {"topstitch": lambda: writer.write(LENGTH, TEMPERATURE)}

    model = CharacterModel(ALPHABET, hidden=HIDDEN, batch=BATCH, window=WINDOW, learning_rate=RATE, seed=0)
    codes = windows()
    yield "lstm_char_train", {"topstitch": lambda: model.train_step(codes)}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(common.THREADS)
    values = {name: torch.from_numpy(value) for name, value in turned(parameters()).items()}

    def forward(code: Any, states: Any) -> tuple[Any, Any]:
        x, after = values["embedding"][code], []
        for layer, (h, c) in enumerate(states):
            gates = torch.addmm(values[f"lstm{layer}.bias"], x, values[f"lstm{layer}.input"])
            i, f, z, o = torch.addmm(gates, h, values[f"lstm{layer}.recurrent"]).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
            x = torch.sigmoid(o) * torch.tanh(c)
            after.append((x, c))
        return torch.softmax(x @ values["output"] * (1 / TEMPERATURE), -1), after

    one, kept = torch.zeros(1, dtype=torch.long), [[(torch.zeros(1, HIDDEN),) * 2] * 2]

    @torch.no_grad()
    def step(function: Callable[..., Any]) -> np.ndarray:
        probabilities, kept[0] = function(one, kept[0])
        result: np.ndarray = probabilities.numpy()
        return result

    @torch.no_grad()
    def write(function: Callable[..., Any]) -> np.ndarray:
        code, states, codes = one, kept[0], []
        for _ in range(LENGTH):
            probabilities, states = function(code, states)
            code = torch.multinomial(probabilities, 1)[0]
            codes.append(code)
        result: np.ndarray = torch.cat(codes).numpy()
        return result

    embedding = torch.nn.Embedding(ALPHABET, EMBEDDING)
    lstm = torch.nn.LSTM(EMBEDDING, HIDDEN, num_layers=2)
    output = torch.nn.Linear(HIDDEN, ALPHABET, bias=False)
    leaves = [*embedding.parameters(), *lstm.parameters(), *output.parameters()]
    optimizer = torch.optim.Adam(leaves, lr=RATE, foreach=True)
    codes = torch.from_numpy(windows()).long()

    def loss_of(state: Any) -> tuple[Any, Any]:
        x, state = lstm(embedding(codes[:-1]), state)
        return F.cross_entropy(output(x).flatten(0, 1), codes[1:].flatten()), state

    trained = [(torch.zeros(2, BATCH, HIDDEN),) * 2]

    def train(function: Callable[..., Any]) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss, state = function(trained[0])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(leaves, MAX_NORM)
        optimizer.step()
        trained[0] = tuple(part.detach() for part in state)
        return float(loss.detach())

    for name, run, function in (
        ("lstm_char", step, forward),
        ("lstm_char_write", write, forward),
        ("lstm_char_train", train, loss_of),
    ):
        cases: dict[str, common.Case] = {"torch": lambda run=run, function=function: run(function)}
        try:
            compiled = torch.compile(function)
            run(compiled)
        except Exception as error:  # needs a compiler at run time
            print(f"torch.compile is left out: {type(error).__name__}", file=sys.stderr)
        else:
            cases["torch.compile"] = lambda run=run, compiled=compiled: run(compiled)
        yield name, cases


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    jnp = jax.numpy
    p = {name: jnp.asarray(value) for name, value in turned(parameters()).items()}
    zeros = {batch: [(jnp.zeros((batch, HIDDEN)),) * 2 for _ in range(2)] for batch in (1, BATCH)}

    def cell(p: Any, layer: int, gates: Any, state: Any) -> Any:
        h, c = state
        i, f, z, o = jnp.split(gates + h @ p[f"lstm{layer}.recurrent"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(z)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def from_input(p: Any, layer: int, x: Any) -> Any:
        return x @ p[f"lstm{layer}.input"] + p[f"lstm{layer}.bias"]

    def probabilities(p: Any, code: Any, states: Any, temperature: Any) -> tuple[Any, Any]:
        x, after = p["embedding"][code], []
        for layer in range(2):
            after.append(cell(p, layer, from_input(p, layer, x), states[layer]))
            x = after[-1][0]
        return jax.nn.softmax(x @ p["output"] * (1 / temperature)), after

    one, kept = jnp.zeros(1, jnp.int32), [zeros[1]]
    one_step = jax.jit(probabilities)

    def step() -> np.ndarray:
        result, kept[0] = one_step(p, one, kept[0], TEMPERATURE)
        return np.asarray(result)

    yield "lstm_char", {"jax": step}

    @jax.jit
    def text(p: Any, code: Any, states: Any, key: Any, temperature: Any) -> Any:
        def body(carried: Any, key: Any) -> tuple[Any, Any]:
            code, states = carried
            result, states = probabilities(p, code, states, temperature)
            code = jax.random.categorical(key, jnp.log(result)).astype(jnp.int32)
            return (code, states), code

        return jax.lax.scan(body, (code, states), jax.random.split(key, LENGTH))

    key = jax.random.key(0)
    yield "lstm_char_write", {"jax": lambda: np.asarray(text(p, one, zeros[1], key, TEMPERATURE)[1])}

    codes = jnp.asarray(windows())

    def loss_of(p: Any, states: Any) -> tuple[Any, Any]:
        x, after = p["embedding"][codes[:-1]], []
        for layer in range(2):

            def body(state: Any, gates: Any, layer: int = layer) -> tuple[Any, Any]:
                state = cell(p, layer, gates, state)
                return state, state[0]

            last, x = jax.lax.scan(body, states[layer], from_input(p, layer, x))
            after.append(last)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(x @ p["output"]), codes[1:][..., None], axis=-1)
        return -chosen.mean(), after

    def update(p: Any, m: Any, v: Any, count: Any, states: Any) -> Any:
        (loss, after), g = jax.value_and_grad(loss_of, has_aux=True)(p, states)
        norm = jnp.sqrt(sum(jnp.vdot(part, part) for part in jax.tree.leaves(g)))
        g = jax.tree.map(lambda part: part * jnp.minimum(1, MAX_NORM / norm), g)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        rate = RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        p = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), p, m, v)
        return loss, p, m, v, count + 1, after

    train = jax.jit(update, donate_argnums=(0, 1, 2))
    nothing = {name: jnp.zeros_like(value) for name, value in p.items()}
    copies = [{name: jnp.copy(value) for name, value in part.items()} for part in (p, nothing, nothing)]
    state = [(*copies, jnp.ones(()), zeros[BATCH])]

    def train_step() -> float:
        loss, *rest = train(*state[0])
        state[0] = tuple(rest)
        return float(loss)

    yield "lstm_char_train", {"jax": train_step}


def remark(name: str, times: dict[str, float]) -> str:
    """How we compare, and how fast a step reads its weights."""
    text = common.best_peer(name, times)
    if name == "lstm_char_train":
        return text
    steps = LENGTH if name == "lstm_char_write" else 1
    rates = ", ".join(f"{case} {read_bytes() * steps / value / 1e9:.0f}" for case, value in times.items())
    return f"{text}; GB/s of {read_bytes() / 1e6:.1f} MB a step: {rates}"


if __name__ == "__main__":
    common.compare("text generator, float32", [topstitch_rows, torch_rows, jax_rows], remark)
