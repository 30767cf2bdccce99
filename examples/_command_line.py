"""What the command lines of the examples share: arguments that are checked, a progress bar, errors, Ctrl-C.

Whatever goes wrong ends as one message on standard error and an exit status that is not 0.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import topstitch as ts

if TYPE_CHECKING:
    from typing_extensions import Self

Number = int | float  # the value of a setting

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


class ExampleError(Exception):
    """What the example was given, or finds on this machine, does not do; the message says how to mend it."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a message that says what it leaves behind."""


def missing_package(error: ImportError, what: str) -> ExampleError:
    """An error that tells how to install what the examples need beside topstitch."""
    return ExampleError(f"{what}, and that is not installed ({error}); pip install 'topstitch[examples]' installs it")


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument: an integer that is not below `least`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {least}, not {text!r}")
        return value

    return parse


def number(least: float, below: float = math.inf, *, open_start: bool = False) -> Callable[[str], float]:
    """The type of an argument: a finite number in [least, below), or in (least, below) with `open_start`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (least < value < below or (value == least and not open_start)):
            end = "" if below == math.inf else f" and below {below:g}"
            start = "above" if open_start else "at least"
            raise argparse.ArgumentTypeError(f"must be a finite number {start} {least:g}{end}, not {text!r}")
        return value

    return parse


@dataclass(frozen=True)
class Setting:
    """An argument that decides what comes out of a run, and is kept in its checkpoint."""

    name: str
    parse: Callable[[str], Number]
    default: Number
    help: str

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"


class Progress:
    """A progress bar, where standard error is a terminal and tqdm is installed; elsewhere nothing is shown."""

    def __init__(self, total: int, unit: str, done: int = 0) -> None:
        try:
            from tqdm import tqdm
        except ImportError:
            self._bar = None
        else:
            self._bar = tqdm(total=total, initial=done, unit=unit, disable=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def show(self, **facts: str) -> None:
        """Show facts beside the bar."""
        if self._bar is not None:
            self._bar.set_postfix(facts)


def run_example(name: str, example: Callable[[], None]) -> int:
    """Run an example and return its exit status."""
    try:
        example()
    except (ExampleError, ts.TopstitchError, OSError, MemoryError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print(f"\n{name}: {str(interrupt) or 'interrupted'}", file=sys.stderr)
        return INTERRUPTED
    return 0
