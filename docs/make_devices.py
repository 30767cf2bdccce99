"""Writes the tables of docs/devices.md: which device runs an operation by a kernel of its own.

It needs a Metal device (on Linux that of a build with the simulation) and the cases of tests/python. `--check` writes
nothing; it fails when the page differs from what would be written.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
from generated_page import write_or_check

import topstitch as ts
from topstitch import _core

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "devices.md"
MARK = "<!-- From here on made by docs/make_devices.py. -->\n"

sys.path.insert(0, str(ROOT / "tests" / "python"))

from op_cases import CASES, make_input  # noqa: E402
from test_ops_forward import build, seed_of  # noqa: E402


def reasons(op: str) -> list[str]:
    """Why kernels of the operation's first case do not run on Metal; empty if they all do."""
    case = CASES[op][0]
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    rng = np.random.default_rng(seed_of(op, dtype))
    arrays = [make_input(case, k, dtype, shape, rng) for k, shape in enumerate(case.shapes)]
    graph = ts.Graph()
    placeholders, outputs = build(op, graph, [a.shape for a in arrays], arrays, case)
    report = graph.compile(placeholders, outputs, device="metal").report()
    found = [region["remark"] for region in report.regions if region["remark"]]
    texts = [re.sub(r".* form: ", "", remark) for remark in found]
    return sorted({re.sub(r"buffer \w+ has", "a buffer has", text) for text in texts})


def tables() -> str:
    families: dict[str, list[str]] = {}
    for op in _core.ops():
        if op["name"] in CASES:
            families.setdefault(op["family"], []).append(op["name"])
    lines = [MARK]
    on_metal = 0
    for family, ops in families.items():
        lines += [f"## {family.capitalize()}\n", "| operation | CPU | Metal |", "| --- | --- | --- |"]
        for op in ops:
            why = reasons(op)
            on_metal += not why
            answer = "; ".join(f"no: {reason}" for reason in why) or "yes"
            lines.append(f"| [{op}](operations.md#{op}) | yes | {answer} |")
        lines.append("")
    count = sum(map(len, families.values()))
    lines.insert(1, f"Of {count} operations, {on_metal} have kernels on Metal; the others run on the CPU there.\n")
    return "\n".join(lines)


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text[: text.index(MARK)] + tables()


def main() -> int:
    return write_or_check(PAGE, page, __doc__, "python docs/make_devices.py with a Metal device")


if __name__ == "__main__":
    sys.exit(main())
