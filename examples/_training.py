"""What training runs share: updates of variables, and a run's folder with a checkpoint to go on from.

A run that was interrupted and resumed ends with the same bits as one that was not.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from topstitch.examples._command_line import ExampleError, Interrupted, Number, Setting, at_least

if TYPE_CHECKING:
    from typing_extensions import Self

import topstitch as ts


def sgd_updates(
    graph: ts.Graph,
    loss: ts.Tensor,
    parameters: Sequence[ts.Tensor],
    learning_rate: ts.Tensor | float,
    momentum: float = 0,
) -> list[ts.Operation]:
    """Assignments that take one step of gradient descent, for the `operations` of a run.

    Gradients are taken for `parameters` alone: other variables on the way to the loss stay as they are.
    """
    gradients = ts.gradients(loss, parameters)
    updates = []
    for parameter in parameters:
        gradient = gradients[parameter]
        if momentum:
            velocity = graph.variable(np.zeros(parameter.shape, np.float32), name=f"{parameter.name}.velocity")
            value, new_velocity = ts.sgd_momentum(parameter, gradient, velocity, learning_rate, momentum)
            updates.append(velocity.assign(new_velocity))
        else:
            value = ts.sgd(parameter, gradient, learning_rate)
        updates.append(parameter.assign(value))
    return updates


def adam_updates(
    graph: ts.Graph,
    loss: ts.Tensor,
    parameters: Sequence[ts.Tensor],
    learning_rate: float,
    beta1: float = 0.9,
    max_norm: float | None = None,
) -> list[ts.Operation]:
    """The same with a step of Adam, perhaps of gradients that are clipped: together no longer than `max_norm`."""
    gradients = ts.gradients(loss, parameters)
    if max_norm is not None:
        *clipped, _ = ts.clip_by_global_norm([gradients[parameter] for parameter in parameters], max_norm=max_norm)
        gradients = dict(zip(parameters, clipped, strict=True))
    step = graph.variable(np.float32(0), name=f"{parameters[0].name}.step")
    updates = [step.assign(step + 1.0)]
    for parameter in parameters:
        momentum = graph.variable(np.zeros(parameter.shape, np.float32), name=f"{parameter.name}.momentum")
        velocity = graph.variable(np.zeros(parameter.shape, np.float32), name=f"{parameter.name}.velocity")
        new = ts.adam(parameter, gradients[parameter], momentum, velocity, step + 1.0, learning_rate, beta1=beta1)
        for variable, value in zip((parameter, momentum, velocity), new, strict=True):
            updates.append(variable.assign(value))
    return updates


def training_parser(
    name: str, description: str | None, epochs: int, settings: Sequence[Setting]
) -> argparse.ArgumentParser:
    """The command line of an example that trains: where to, how long, and its settings."""
    parser = argparse.ArgumentParser(prog=f"python -m topstitch {name}", description=description)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", default=Path(name), help=f"where the results go; default: {name}"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the output folder")
    parser.add_argument(
        "--epochs", type=at_least(1), default=epochs, help=f"in all, also with --resume; default: {epochs}"
    )
    for setting in settings:
        default = f"default: {setting.default}, or what it was in the run that is resumed"
        parser.add_argument(setting.option, type=setting.parse, help=f"{setting.help}; {default}")
    return parser


class TrainingRun:
    """A folder with a checkpoint: all variables, the settings that decide what comes out, and the curves so far.

    As a context manager it turns Ctrl-C into a message that says where the last checkpoint is.
    """

    def __init__(self, options: argparse.Namespace, settings: Sequence[Setting], curves: Sequence[str]) -> None:
        """Begin a run, or resume one, as the options of `training_parser` say; with the names of its curves.

        A resumed run has the settings of its checkpoint; options that contradict them are an error.
        """
        self.folder: Path = options.output
        self.checkpoint = self.folder / "checkpoint.safetensors"
        self.epochs = 0
        self.settings: dict[str, Number] = {}
        self.curves: dict[str, list[float]] = {name: [] for name in curves}
        self._resumed: bool = options.resume
        self._saved: dict[str, ts.NDArray] = {}  # values of variables that wait for their graph
        asked = {setting.name: getattr(options, setting.name) for setting in settings}
        if self._resumed:
            self._load(settings, asked)
        else:
            self.settings = {s.name: s.default if asked[s.name] is None else asked[s.name] for s in settings}
        self._make_folder()
        if not self._resumed and self.checkpoint.exists():
            print(f"{self.checkpoint} will be replaced after the first epoch; --resume would go on from it")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; --resume goes on from {self.checkpoint}"
                if self.checkpoint.exists()
                else "interrupted before the first checkpoint"
            ) from None

    def record(self, **values: float) -> None:
        """Add a point to each of the curves named."""
        for name, value in values.items():
            self.curves[name].append(value)

    def print_steps(self, times: Sequence[float], what: str) -> None:
        """Say how many steps of what were taken and how long one took, of the seconds of each."""
        if times:
            print(f"{len(times)} steps of {what}, {np.median(times) * 1e3:.2f} ms each (median)")
        else:
            print(
                f"the checkpoint has {self.epochs} epochs already; --epochs names how many there should be in the end"
            )

    def use_data(self, checksum: int, option: str = "--data") -> None:
        """Tell which data the run is about, which an option names. A resumed run must have the same."""
        if self.settings.setdefault("data", checksum) != checksum:
            raise ExampleError(
                f"{self.checkpoint} comes from a run with other data; give {option} as it was given then"
            )

    def restore(self, graph: ts.Graph) -> None:
        """Give the variables the values of the checkpoint, if the run is resumed: all of them or none."""
        if not self._resumed:
            return
        variables = {variable.name: variable for variable in graph.variables}
        problems = [f"it lacks {name}" for name in variables if name not in self._saved]
        problems += [f"{name} is unknown" for name in self._saved if name not in variables]
        for name, variable in variables.items():
            array = self._saved.get(name)
            if array is not None and (array.shape != variable.shape or array.dtype != variable.dtype.numpy):
                problems.append(
                    f"{name} is {array.dtype}{list(array.shape)}, not {variable.dtype}{list(variable.shape)}"
                )
        if problems:
            more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise ExampleError(f"{self.checkpoint} is of another model: {'; '.join(problems[:3])}{more}")
        for name, variable in variables.items():
            graph.set_variable_value(variable, self._saved[name])
        self._saved = {}

    def save(self, graph: ts.Graph) -> None:
        """Finish an epoch: write the checkpoint, as a whole or not at all."""
        arrays: dict[str, Any] = {f"variable/{v.name}": graph.variable_value(v) for v in graph.variables}
        arrays |= {f"setting/{name}": np.array(value) for name, value in self.settings.items()}
        arrays |= {f"curve/{name}": np.array(values, np.float64) for name, values in self.curves.items()}
        arrays["epochs"] = np.array(self.epochs + 1)
        ts.save_arrays(self.checkpoint, arrays)
        self.epochs += 1

    def _make_folder(self) -> None:
        """Find out before training, not after an epoch, whether the folder can be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise ExampleError(f"cannot write into the folder {self.folder}: {error.strerror}") from error

    def _load(self, settings: Sequence[Setting], asked: Mapping[str, Number | None]) -> None:
        try:
            arrays = ts.load_arrays(self.checkpoint)
        except FileNotFoundError as error:
            raise ExampleError(
                f"there is no {self.checkpoint} to resume from; leave --resume out to begin, or name the folder of a "
                "checkpoint with --output"
            ) from error
        try:
            self.epochs = at_least(1)(str(arrays.pop("epochs")))
            self.settings = {s.name: s.parse(str(arrays.pop(f"setting/{s.name}"))) for s in settings}
            self.settings["data"] = int(arrays.pop("setting/data"))
            self.curves = {name: [float(value) for value in arrays.pop(f"curve/{name}")] for name in self.curves}
        except (KeyError, TypeError, ValueError, argparse.ArgumentTypeError) as error:
            reason = f"it lacks {error.args[0]}" if isinstance(error, KeyError) else str(error)
            raise ExampleError(f"{self.checkpoint} is no checkpoint of this example: {reason}") from error
        for setting in settings:
            saved, value = self.settings[setting.name], asked[setting.name]
            if value is not None and value != saved:
                raise ExampleError(
                    f"{self.checkpoint} comes from a run with {setting.option} {saved:g}, not {value:g}; a resumed run "
                    "keeps its settings: leave the option out, or begin anew without --resume"
                )
        self._saved = {name.removeprefix("variable/"): array for name, array in arrays.items()}
