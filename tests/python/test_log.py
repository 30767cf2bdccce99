"""The log: silent unless asked, one line for each compilation, and the reason for a new variant."""

from __future__ import annotations

import os
import re
import subprocess
import sys

CODE = """
import numpy as np, topstitch as ts
g = ts.Graph()
x = g.placeholder((-1, 3), name="x")
y = ts.exp(x) * 1.25
for rows in (5, 6, 1):
    g.run({x: np.ones((rows, 3), np.float32)}, y)
g.run({x: np.ones((6, 3), np.float32)}, y)
g.run({x: np.ones((6, 3), np.float32)}, y, stitch=False)
"""


def _log(level: str | None) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if key != "TOPSTITCH_LOG_LEVEL"}
    if level is not None:
        environment["TOPSTITCH_LOG_LEVEL"] = level
    run = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stderr.splitlines()


def test_silent_by_default() -> None:
    assert _log(None) == []
    assert _log("off") == []


def test_info_counts_kernels() -> None:
    lines = _log("info")
    pattern = (
        r"topstitch: compiled (\d+) kernels? \((\d+) new, (\d+) from disk, the others from memory\) in [\d.e+]+ ms, "
        r"for feed 'x' (.*)"
    )
    found = [re.fullmatch(pattern, line) for line in lines]
    assert len(lines) == 3
    assert all(found), lines
    assert [match[4] for match in found if match] == ["float32(5, 3)", "float32(1, 3)", "float32(6, 3)"]
    assert [match[1] for match in found if match] == ["1", "1", "2"]


def test_debug_says_why() -> None:
    reasons = [line for line in _log("debug") if line.startswith("topstitch: compiling")]
    assert len(reasons) == 3
    assert "it is the first run or compilation of this graph" in reasons[0]
    assert "feed 'x' is (1, 3) and was (5, 3)" in reasons[1]
    assert "the compile options differ" in reasons[2]


def test_unknown_level() -> None:
    environment = dict(os.environ, TOPSTITCH_LOG_LEVEL="loud")
    run = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode != 0
    assert "TOPSTITCH_LOG_LEVEL is 'loud'; set it to off, info or debug" in run.stderr
