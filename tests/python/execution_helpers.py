"""What the tests of queues, jobs, caches and processes share: work held back by an event, and children.

Nothing sleeps here to order things: work that must not run yet waits for an event.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np

import topstitch as ts

PATIENCE = 60.0  # seconds after which something is taken to hang; nothing is expected to take that long

PRELUDE = """
import asyncio, faulthandler, gc, os, signal, sys, threading, time
import numpy as np, topstitch as ts
faulthandler.enable()
graph = ts.Graph()
x = graph.placeholder((-1,), name="x")
v = graph.variable(np.zeros(4, np.float32), name="v")
double, step = x * 2.0, v.assign(v + 1.0)
four = np.arange(4, dtype=np.float32)
def held(queue):
    "Work that waits for the event that is returned with it."
    event, commands = ts.Event(), ts.CommandBuffer(queue)
    commands.wait_for(event, 1)
    return event, commands.commit()
"""


class Doubler:
    """A graph that doubles its feed, and counts in a variable."""

    def __init__(self) -> None:
        self.graph = ts.Graph()
        self.x = self.graph.placeholder((-1,), name="x")
        self.count = self.graph.variable(np.float32(0), name="count")
        self.double = self.x * 2.0
        self.step = self.count.assign(self.count + 1.0)
        self.executable = self.graph.compile([self.x], self.double)

    def value(self) -> float:
        return float(self.graph.variable_value(self.count))


def held(queue: ts.Queue) -> tuple[ts.Event, ts.Job]:
    """Work that waits for the event that is returned with it."""
    event, commands = ts.Event(), ts.CommandBuffer(queue)
    commands.wait_for(event, 1)
    return event, commands.commit()


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def start(code: str, prelude: str = PRELUDE, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", prelude + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """What it printed; it must end with `status` and complain about nothing."""
    try:
        out, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        raise AssertionError(f"hangs\n{out}\n{errors}") from None
    assert process.returncode == status, f"ended with {process.returncode}\n{out}\n{errors}"
    assert errors == "", errors
    return out


def run_child(code: str, status: int = 0, prelude: str = PRELUDE, **environment: str) -> str:
    return finish(start(code, prelude, **environment), status)


def raised(action: Any, *arguments: Any) -> BaseException | None:
    try:
        action(*arguments)
    except BaseException as error:
        return error
    return None
