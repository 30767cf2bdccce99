"""The command line: `python -m topstitch`.

Prints facts about the installation, or runs an example that comes with the package.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__, _core

# Each example is a module of topstitch.examples with `main(arguments) -> exit status`.
EXAMPLES = {
    "digits": "train a classifier on scikit-learn's handwritten digits, in seconds",
    "cnn_train": "train a convolutional one, on them or on MNIST, with checkpoints",
    "gan_train": "train a generator of digits against a discriminator, both in one graph",
    "lstm_char": "train a writer of text, character by character, and let it write",
    "overlap": "prepare the next batch while the last one is computed, and print the gain",
}


def cmake_dir() -> Path:
    """The folder of topstitchConfig.cmake, for find_package(topstitch)."""
    return Path(_core.__file__).parent / "share" / "cmake" / "topstitch"


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m topstitch", description="The tensor-graph compiler topstitch.")
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--cmake-dir", action="store_true", help="print the folder of topstitchConfig.cmake")
    examples = parser.add_subparsers(dest="example", title="examples", metavar="EXAMPLE")
    for name, summary in EXAMPLES.items():
        examples.add_parser(name, help=summary, add_help=False)
    known, rest = parser.parse_known_args(arguments)
    if known.example:
        module = importlib.import_module(f".examples.{known.example}", __package__)
        return int(module.main(rest))
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if known.cmake_dir:
        print(cmake_dir())
    else:
        parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
