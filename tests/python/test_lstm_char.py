"""The text generator: training is as in PyTorch, writing as in NumPy, draws follow the softmax; runs repeat and resume.

What goes wrong with files and options is in test_lstm_char_runs.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from recurrent_reference import DEFAULTS, one_step
from topstitch.examples import lstm_char
from topstitch.examples._text import chosen_text
from topstitch.examples.lstm_char import EMBEDDING, CharacterModel, Writer, initial_values

ALPHABET, HIDDEN, BATCH, WINDOW, RATE = 11, 24, 3, 9, 0.01
Arrays = dict[str, np.ndarray]


def windows(count: int) -> list[np.ndarray]:
    """Windows of which each begins where the one before ended."""
    codes = np.random.default_rng(5).integers(0, ALPHABET, (count * WINDOW + 1, BATCH)).astype(np.int32)
    return [codes[k * WINDOW : (k + 1) * WINDOW + 1] for k in range(count)]


def small_model(seed: int = 1) -> CharacterModel:
    return CharacterModel(ALPHABET, hidden=HIDDEN, batch=BATCH, window=WINDOW, learning_rate=RATE, seed=seed)


class TorchModel:
    """The same network in PyTorch, in float64, with the same parameters and a state that goes on."""

    def __init__(self, values: Arrays) -> None:
        torch = pytest.importorskip("torch")
        self.embedding = torch.nn.Embedding(ALPHABET, EMBEDDING)
        self.lstm = torch.nn.LSTM(EMBEDDING, HIDDEN, num_layers=2)
        self.output = torch.nn.Linear(HIDDEN, ALPHABET, bias=False)
        self.parameters = {"embedding": self.embedding.weight}
        for layer in range(2):
            for ours, theirs in (("input", "weight_ih"), ("recurrent", "weight_hh"), ("bias", "bias_ih")):
                self.parameters[f"lstm{layer}.{ours}"] = getattr(self.lstm, f"{theirs}_l{layer}")
            getattr(self.lstm, f"bias_hh_l{layer}").data.zero_()  # one bias is enough
        self.parameters["output"] = self.output.weight
        for name, parameter in self.parameters.items():
            value = values[name].T if name == "output" else values[name]
            parameter.data = torch.tensor(value, dtype=torch.float64)
        for layer in range(2):
            hidden_bias = getattr(self.lstm, f"bias_hh_l{layer}")
            hidden_bias.data = hidden_bias.data.double()
        self.state: Any = None

    def forward(self, window: np.ndarray) -> tuple[Any, Any]:
        """Logits and loss; gradients of a window end where it begins."""
        import torch

        codes = torch.from_numpy(window).long()
        states, state = self.lstm(self.embedding(codes[:-1]), self.state)
        self.state = tuple(part.detach() for part in state)
        logits = self.output(states)
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), codes[1:].flatten())

    def array(self, name: str, gradient: bool = False) -> np.ndarray:
        parameter = self.parameters[name]
        value: np.ndarray = (parameter.grad if gradient else parameter.detach()).numpy()
        return value.T if name == "output" else value


def assert_close(ours: object, theirs: np.ndarray, factor: float, what: str) -> None:
    """The largest difference is at most `factor` times the largest element."""
    difference = np.abs(np.asarray(ours, np.float64) - theirs).max()
    assert difference <= factor * np.abs(theirs).max(), what


def test_values_and_gradients_are_those_of_pytorch() -> None:
    model = small_model()
    reference = TorchModel(model.trained())
    first, second = windows(2)
    reference.forward(first)
    logits, loss = reference.forward(second)  # from the states that the first window leaves
    loss.backward()
    gradients = ts.gradients(model.loss, list(model.parameters.values()))
    assert len(gradients) == 8
    model.graph.run({model.window: first}, None, model.updates[-4:])  # goes on with the states, and learns nothing
    got = model.graph.run(
        {model.window: second},
        {"logits": model.logits, "loss": model.loss, **{tensor.name: g for tensor, g in gradients.items()}},
    )
    assert_close(got["logits"], logits.detach().numpy(), 2e-6, "logits")
    assert_close(got["loss"], loss.detach().numpy(), 1e-6, "loss")
    for name in model.parameters:
        assert_close(got[name], reference.array(name, gradient=True), 5e-6, name)


@pytest.mark.parametrize("max_norm", [0.05, 1.0])
def test_steps_are_those_of_pytorch(max_norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm_char, "MAX_NORM", max_norm)  # all gradients together are longer than the first of them
    model = small_model()
    reference = TorchModel(model.trained())
    import torch

    parameters = list(reference.parameters.values())
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    norms = []
    for step, window in enumerate(windows(6), start=1):
        # PyTorch adds its epsilon to another multiple of the root.
        optimizer.param_groups[0]["eps"] = 1e-8 / (1 - 0.999**step) ** 0.5
        optimizer.zero_grad()
        _, loss = reference.forward(window)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, max_norm)))
        optimizer.step()
        assert model.train_step(window) == pytest.approx(loss.item(), rel=1e-5)
    assert (min(norms) > max_norm) == (max_norm == 0.05)
    for name, value in model.trained().items():
        assert_close(value, reference.array(name), 2e-5, name)


def random_parameters(seed: int) -> Arrays:
    """Weights large enough to make each character depend on what was before it."""
    random = np.random.default_rng(seed)
    values = initial_values(ALPHABET, HIDDEN, seed)
    return {
        name: (3 * random.standard_normal(v.shape) / v.shape[-1] ** 0.5).astype(np.float32)
        for name, v in values.items()
    }


class Chain:
    """The network in NumPy, in float64, a character at a time."""

    def __init__(self, values: Arrays) -> None:
        self.values = {name: value.astype(np.float64) for name, value in values.items()}
        self.states = [[np.zeros((1, HIDDEN)), np.zeros((1, HIDDEN))] for _ in range(2)]

    def logits(self, code: int) -> np.ndarray:
        x = self.values["embedding"][code][None]
        for layer in range(2):
            part = {name: self.values[f"lstm{layer}.{name}"] for name in ("input", "recurrent", "bias")}
            gates = x @ part["input"].T + part["bias"]
            given = {"recurrent_weight": part["recurrent"]}
            self.states[layer], _ = one_step("lstm", gates, self.states[layer], given, DEFAULTS["lstm"])
            x = self.states[layer][0]
        result: np.ndarray = (x @ self.values["output"])[0]
        return result


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_temperature_0_writes_the_most_likely_characters(seed: int) -> None:
    values = random_parameters(seed)
    prompt = np.array([3, 1, 4, 1, 5], np.int32)
    chain = Chain(values)
    for code in prompt[:-1]:
        chain.logits(code)
    code, expected = int(prompt[-1]), []
    for _ in range(200):
        logits = chain.logits(code)
        code = int(logits.argmax())
        second, first = np.sort(logits)[-2:]
        assert first - second > 1e-4  # far enough apart for float32
        expected.append(code)
    assert len(set(expected)) > 2
    writer = Writer(values, seed=9)
    writer.begin(prompt)
    np.testing.assert_array_equal(writer.write(200, temperature=0), expected)
    writer.begin(prompt)  # forgets what was before
    np.testing.assert_array_equal(writer.write(200, temperature=0), expected)


def constant_logits(logits: np.ndarray) -> Arrays:
    """Parameters by which nothing depends on what was before: each step gives the logits given."""
    values = {name: np.zeros_like(value) for name, value in initial_values(len(logits), HIDDEN, 0).items()}
    for layer in range(2):  # the gates i, f, z, o are 1, 0, 1, 1, which makes each cell 1
        values[f"lstm{layer}.bias"] = np.repeat(np.array([100, -100, 100, 100], np.float32), HIDDEN)
    return values | {"output": np.tile(logits / (HIDDEN * np.tanh(1)), (HIDDEN, 1)).astype(np.float32)}


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    result: np.ndarray = e / e.sum()
    return result


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_characters_are_drawn_as_often_as_softmax_says(temperature: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    logits = np.random.default_rng(2).normal(0, 1.2, 16)
    writer = Writer(constant_logits(logits), seed=4)
    codes = writer.write(20_000, temperature)
    expected = 20_000 * softmax(logits / temperature)
    common = expected > 10
    assert stats.chisquare(
        [*np.bincount(codes, minlength=16)[common], (~common)[codes].sum() + 1],
        [*expected[common], expected[~common].sum() + 1],
    ).pvalue > 1e-3  # fmt: skip


def test_characters_are_drawn_independently() -> None:
    stats = pytest.importorskip("scipy.stats")
    logits = np.array([0.0, 0.5, 1.0, -0.5])
    codes = Writer(constant_logits(logits), seed=6).write(20_000, temperature=1)
    for apart in (1, 2, 4):
        pairs = np.bincount(4 * codes[:-apart] + codes[apart:], minlength=16)
        expected = np.outer(softmax(logits), softmax(logits)).ravel() * pairs.sum()
        assert stats.chisquare(pairs, expected).pvalue > 1e-3


def test_temperatures_from_one_end_to_the_other() -> None:
    logits = np.array([1.0, 1.1, 0.5, 0.0])
    for temperature in (0, 1e-45, 1e-6):  # even where 1 / temperature is infinite in float32
        assert set(Writer(constant_logits(logits), seed=1).write(50, temperature)) == {1}
    counts = np.bincount(Writer(constant_logits(logits), seed=1).write(4000, 1e5))
    assert counts.min() > 850  # all as likely: 1000 each, with a deviation of 27


def test_it_does_not_matter_in_how_many_runs_a_text_is_written() -> None:
    values = random_parameters(1)

    def written(write: Callable[[Writer], Any]) -> np.ndarray:
        writer = Writer(values, seed=7)
        writer.begin(np.array([2, 5, 8], np.int32))
        return np.concatenate([np.atleast_1d(part) for part in write(writer)])

    whole = written(lambda writer: [writer.write(100, 0.9)])
    assert len(set(whole)) > 5
    steps = written(lambda writer: [writer.write(1, 0.9) for _ in range(100)])
    np.testing.assert_array_equal(steps, whole)
    np.testing.assert_array_equal(written(lambda writer: writer.write_in_blocks(100, 0.9, block=32)), whole)
    np.testing.assert_array_equal(written(lambda writer: writer.write_in_blocks(100, 0.9, block=7)), whole)


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    values = random_parameters(1)
    texts = [Writer(values, seed).write(60, 1.0).tolist() for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def run_example(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[bytes, str]:
    """Run the command line; returns the bytes of its checkpoint, and the text that it wrote."""
    arguments = [str(word) for word in words]
    assert lstm_char.main([*arguments, "--batch", "4", "--window", "8", "--hidden", "16", "--length", "60"]) == 0
    out = capsys.readouterr().out
    checkpoint = Path(arguments[arguments.index("--output") + 1]) / "checkpoint.safetensors"
    return checkpoint.read_bytes(), out.split("\n\n", 1)[1]


def test_training_repeats_and_resumes_bit_for_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    text = tmp_path / "text"
    text.write_text("Peter Piper picked a peck of pickled peppers. " * 10, encoding="utf-8")

    def run(name: str, *words: object) -> tuple[bytes, str]:
        return run_example(capsys, "--text", text, "--output", tmp_path / name, *words)

    first = run("a", "--epochs", 3)
    assert len(first[1]) == len("P") + 60 + len("\n")
    assert first[1].startswith("P")
    assert run("b", "--epochs", 3) == first
    assert run("c", "--epochs", 3, "--seed", 1)[0] != first[0]
    one = run("d", "--epochs", 1)
    assert one[0] != first[0]
    assert run("d", "--epochs", 3, "--resume") == first
    assert run("d", "--epochs", 3, "--resume") == first  # only writes
    other = run("d", "--epochs", 3, "--resume", "--draw", 1, "--prompt", "pick", "--temperature", 1)
    assert other[0] == first[0]
    assert other[1].startswith("pick")
    assert (tmp_path / "d" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_loss_falls_and_temperature_shows() -> None:
    """300 steps bring the loss below 2.2, where the last character alone allows no less than 2.4 or so."""
    pytest.importorskip("pydoc_data")
    text = chosen_text(None)
    size = len(text.alphabet)
    model = CharacterModel(size, hidden=128, batch=16, window=32, learning_rate=0.01, seed=0)
    losses = [model.train_step(codes) for _, codes in zip(range(300), text.windows(16, 32), strict=False)]
    assert abs(losses[0] - np.log(size)) < 0.5  # at first all characters are about as likely
    assert np.mean(losses[-20:]) < 2.2

    pairs = np.bincount(size * text.codes[:-1] + text.codes[1:], minlength=size * size).reshape(size, size)
    of_first = pairs.sum(axis=1, keepdims=True)
    entropy = -np.sum(pairs * np.log(pairs / np.maximum(of_first, 1), where=pairs > 0, out=np.zeros(pairs.shape)))
    assert np.mean(losses[-20:]) < entropy / pairs.sum()  # more than pairs of characters was learnt

    def text_at(temperature: float) -> str:
        writer = Writer(model.trained(), seed=0)
        writer.begin(text.encode("The "))
        return text.decode(writer.write(2000, temperature))

    texts = [text_at(temperature) for temperature in (0, 0.5, 1, 2)]
    variety = [len(set(written)) for written in texts]
    assert variety == sorted(set(variety))  # the hotter, the more different characters
    words = set(text.decode(text.codes).split())
    right = [np.mean([word in words for word in written.split()]) for written in texts]
    assert right[1] > 0.6
    assert right[1] > right[2] > right[3]
