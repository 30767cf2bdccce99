"""Train a network that writes text character by character, and let it write.

`python -m topstitch lstm_char` learns from the prose that comes with CPython; `--text FILE` from any text.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import topstitch as ts
from topstitch.examples._command_line import Progress, Setting, at_least, number, run_example
from topstitch.examples._pictures import check_pictures, save_curves
from topstitch.examples._text import Array, Text, chosen_text
from topstitch.examples._training import TrainingRun, adam_updates, training_parser

LAYERS = 2
EMBEDDING = 128  # features that stand for a character
MAX_NORM = 1.0  # of all gradients of a step together; a long product of gates may blow them up
COLDEST = 1e-3  # the lowest temperature that makes a difference
TINY = 1e-30  # in place of a random number of 0, whose logarithm would be infinite
BLOCK = 32  # characters in a run when text is shown as it is written

States = list[tuple[ts.Tensor, ts.Tensor]]  # of each layer: state and cell, [batch, hidden]


def initial_values(alphabet: int, hidden: int, seed: int) -> dict[str, Array]:
    """Parameters to begin with, by name."""
    random = np.random.default_rng(seed)

    def weights(rows: int, columns: int, fan_in: int) -> Array:
        return np.asarray(random.standard_normal((rows, columns), dtype=np.float32) * np.float32(fan_in**-0.5))

    values = {"embedding": weights(alphabet, EMBEDDING, EMBEDDING)}
    features = EMBEDDING
    for layer in range(LAYERS):
        values[f"lstm{layer}.input"] = weights(4 * hidden, features, features)
        values[f"lstm{layer}.recurrent"] = weights(4 * hidden, hidden, hidden)
        # The gates i, f, z, o lie one after the other. At first f keeps most of a cell (R. Jozefowicz et al., 2015).
        values[f"lstm{layer}.bias"] = np.repeat(np.array([0, 1, 0, 0], np.float32), hidden)
        features = hidden
    values["output"] = weights(hidden, alphabet, hidden)
    return values


class Network:
    """Embedding, LSTM layers and output: of characters and states, a logit for each character that may come next.

    The parameters are variables where they are trained, and constants where they are used.
    """

    def __init__(self, parameters: Mapping[str, ts.Tensor]) -> None:
        self._parameters = parameters

    def sequence(self, codes: ts.Tensor, states: States) -> tuple[ts.Tensor, States]:
        """Logits for codes [steps, batch] from the states before them, and the states after them."""
        x, after = ts.gather(self._parameters["embedding"], codes), []
        for layer, (state, cell) in enumerate(states):
            recurrent, weights, bias = self._layer(layer)
            x, cells, _ = ts.lstm(x, recurrent, weights, bias, initial_state=state, initial_cell=cell)
            after.append((x[-1], cells[-1]))
        return x @ self._parameters["output"], after

    def step(self, codes: ts.Tensor, states: States) -> tuple[ts.Tensor, States]:
        """The same for one step: codes [batch]."""
        x, after = ts.gather(self._parameters["embedding"], codes), []
        for layer, (state, cell) in enumerate(states):
            recurrent, weights, bias = self._layer(layer)
            x, cell, _ = ts.lstm_step(x, state, cell, recurrent, weights, bias)
            after.append((x, cell))
        return x @ self._parameters["output"], after

    def _layer(self, layer: int) -> tuple[ts.Tensor, ts.Tensor, ts.Tensor]:
        recurrent, weights, bias = (self._parameters[f"lstm{layer}.{part}"] for part in ("recurrent", "input", "bias"))
        return recurrent, weights, bias


def state_variables(graph: ts.Graph, batch: int, hidden: int) -> States:
    """Variables of zeros for the states of all layers: they stay on the device from run to run."""

    def variable(layer: int, what: str) -> ts.Tensor:
        return graph.variable(np.zeros((batch, hidden), np.float32), name=f"lstm{layer}.{what}")

    return [(variable(layer, "state"), variable(layer, "cell")) for layer in range(LAYERS)]


def clear(graph: ts.Graph, states: States) -> None:
    """Go back to the states before a text."""
    for variable in (variable for pair in states for variable in pair):
        graph.set_variable_value(variable, np.zeros(variable.shape, np.float32))


def assignments(variables: States, values: States) -> list[ts.Operation]:
    """Make the values those of the variables, when a run is done."""
    pairs = zip(variables, values, strict=True)
    return [variable.assign(value) for pair in pairs for variable, value in zip(*pair, strict=True)]


class CharacterModel:
    """The network and its training: back propagation through windows of a text, truncated where a window begins.

    Each column of a batch goes on where the one before ended: what it left in the states is where it starts from.
    """

    def __init__(self, alphabet: int, *, hidden: int, batch: int, window: int, learning_rate: float, seed: int) -> None:
        graph = self.graph = ts.Graph()
        values = initial_values(alphabet, hidden, seed)
        self.parameters = {name: graph.variable(value, name=name) for name, value in values.items()}
        self.states = state_variables(graph, batch, hidden)
        self.window = graph.placeholder((window + 1, batch), dtype=ts.int32, name="window")

        # Every character is to be told from those before it.
        self.logits, after = Network(self.parameters).sequence(self.window[:-1], self.states)
        self.loss = ts.softmax_cross_entropy(self.logits, self.window[1:], axis=-1, reduction="mean")
        parameters = list(self.parameters.values())
        self.updates = adam_updates(graph, self.loss, parameters, learning_rate, max_norm=MAX_NORM)
        self.updates += assignments(self.states, after)

    def train_step(self, window: Array) -> float:
        """One step of training; returns the loss before it, in nats per character."""
        return float(self.graph.run({self.window: window}, self.loss, self.updates))

    def trained(self) -> dict[str, Array]:
        """The parameters, by name."""
        return {name: np.asarray(self.graph.variable_value(v)) for name, v in self.parameters.items()}


class Writer:
    """Writes with trained parameters, which are constants here. One run writes as many characters as are asked for.

    A loop in the graph goes from character to character. What it carries - the last character, the states of all
    layers and the state of the random numbers - lies in variables between runs, so that it does not matter in how many
    runs a text is written.
    """

    def __init__(self, parameters: Mapping[str, Array], seed: int) -> None:
        graph = self.graph = ts.Graph()
        network = Network({name: graph.constant(value) for name, value in parameters.items()})
        alphabet, hidden = len(parameters["embedding"]), len(parameters["output"])
        self.temperature = graph.placeholder((), name="temperature")
        self.given = graph.placeholder(("length",), dtype=ts.int32, name="given")  # -1 where the network is to choose
        self.character = graph.variable(np.zeros(1, np.int32), name="character")
        self.random = graph.variable(np.array([0, 0, seed % 2**64], np.uint64), name="random")  # the state of Philox
        self.states = state_variables(graph, 1, hidden)
        sharpness = 1 / ts.maximum(self.temperature, COLDEST)

        def write_one(carried: dict[str, Any], given: ts.Tensor) -> tuple[dict[str, Any], ts.Tensor]:
            logits, states = network.step(carried["character"], carried["states"])
            probabilities = ts.softmax(logits * sharpness, axis=-1)
            # Of runners who need times with exponential distributions, the one of rate p wins with probability p.
            # At temperature 0 there is no chance: all need the same, and the most likely character wins.
            uniform, random = ts.random_uniform((1, alphabet), state=carried["random"], minimum=TINY)
            times = ts.where(self.temperature > 0, -ts.log(uniform), 1.0)
            chosen = ts.argmax(probabilities / times, axis=-1)
            character = ts.where(given >= 0, given, chosen)
            return {"character": character, "random": random, "states": states}, character[0]

        carried = {"character": self.character, "random": self.random, "states": self.states}
        after, self.written = ts.scan(write_one, carried, self.given)
        self.updates = assignments(self.states, after["states"])
        self.updates += [self.character.assign(after["character"]), self.random.assign(after["random"])]

    def begin(self, codes: Array) -> None:
        """Read a text, of at least a character; what is written next goes on from its end."""
        clear(self.graph, self.states)
        self.graph.set_variable_value(self.character, codes[:1])
        self._run(codes[1:], 0)

    def write(self, length: int, temperature: float) -> Array:
        """The next characters, in one run."""
        return self._run(np.full(length, -1, np.int32), temperature)

    def write_in_blocks(self, length: int, temperature: float, block: int = BLOCK) -> Iterator[Array]:
        """The same a block at a time, to be shown while the next one is written."""
        for start in range(0, length, block):
            yield self.write(min(block, length - start), temperature)

    def _run(self, given: Array, temperature: float) -> Array:
        """The characters from the next one on: those given, and those chosen where -1 is given."""
        feeds = {self.given: given, self.temperature: np.float32(temperature)}
        return np.asarray(self.graph.run(feeds, self.written, self.updates))


SETTINGS = (
    Setting("batch", at_least(1), 32, "windows in a step"),
    Setting("window", at_least(1), 64, "characters in a window, through which gradients go back"),
    Setting("hidden", at_least(1), 256, "features of each layer's state"),
    Setting("learning_rate", number(0, open_start=True), 4e-3, "of all parameters"),
    Setting("seed", at_least(0), 0, "decides initial weights"),
)


def train(options: argparse.Namespace) -> None:
    """Train as the command line says; write a checkpoint after each epoch, a picture of the loss, and a text."""
    check_pictures()
    with TrainingRun(options, SETTINGS, curves=("loss",)) as run:
        batch, window = int(run.settings["batch"]), int(run.settings["window"])
        text = chosen_text(options.text)
        text.check_length(batch, window)
        run.use_data(text.checksum(), option="--text")
        prompt = text.codes[:1] if options.prompt is None else text.encode(options.prompt)
        model = CharacterModel(
            len(text.alphabet),
            hidden=int(run.settings["hidden"]),
            batch=batch,
            window=window,
            learning_rate=run.settings["learning_rate"],
            seed=int(run.settings["seed"]),
        )
        run.restore(model.graph)

        times = []
        steps = text.steps(batch, window)
        with Progress(options.epochs * steps, "step", done=run.epochs * steps) as progress:
            for _ in range(run.epochs, options.epochs):
                clear(model.graph, model.states)
                for codes in text.windows(batch, window):
                    start = time.perf_counter()
                    run.record(loss=model.train_step(codes))
                    times.append(time.perf_counter() - start)
                    progress.advance()
                run.save(model.graph)
                progress.show(loss=f"{run.curves['loss'][-1]:.4f}")

        picture = run.folder / "loss.png"
        save_curves(picture, [("step", "loss, nats per character", run.curves)])
        run.print_steps(times, f"{batch} windows")
        print(f"last loss {run.curves['loss'][-1]:.4f} nats per character")
        print(f"wrote {run.checkpoint} and {picture}\n")
        show(Writer(model.trained(), options.draw), text, prompt, options.length, options.temperature)


def show(writer: Writer, text: Text, prompt: Array, length: int, temperature: float) -> None:
    """Print the prompt and what comes after it, as it is written."""
    encoding = sys.stdout.encoding or "utf-8"

    def put(codes: Array) -> None:
        shown = text.decode(codes).encode(encoding, "replace").decode(encoding)  # whatever the terminal can show
        print(shown, end="", flush=True)

    writer.begin(prompt)
    put(prompt)
    for codes in writer.write_in_blocks(length, temperature):
        put(codes)
    print()


def main(arguments: Sequence[str]) -> int:
    """Run the example; returns the exit status."""
    parser = training_parser("lstm_char", __doc__, epochs=8, settings=SETTINGS)
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="a UTF-8 text to learn from; default: CPython's prose"
    )
    parser.add_argument("--length", type=at_least(1), default=500, help="characters to write; default: 500")
    parser.add_argument(
        "--temperature",
        type=number(0, below=1e6),
        default=0.7,
        help="0 writes what is most likely, 1 what is as likely as in the text, more what is less; default: 0.7",
    )
    parser.add_argument("--prompt", type=prompt_text, help="what is gone on from; default: the text's first character")
    parser.add_argument("--draw", type=at_least(0), default=0, help="another number writes another text; default: 0")
    options = parser.parse_args(arguments)
    return run_example("lstm_char", lambda: train(options))


def prompt_text(text: str) -> str:
    """The type of an argument: at least one character."""
    if not text:
        raise argparse.ArgumentTypeError("must have at least one character")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
