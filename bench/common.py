"""What the benchmarks share: libraries that take turns, each in a process of its own, and a table of ratios.

Threads of one library spin for a while after its turn, and would hold up the next one in the same process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TOPSTITCH_NUM_THREADS"):
    os.environ.setdefault(_variable, str(THREADS))
os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={THREADS}")
# Older OpenBLAS builds are steered by these; a fair figure of today's NumPy needs them away.
for _variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(_variable, None)

ROUNDS = 9
PAUSE = 0.04  # seconds between turns: OpenBLAS threads spin for 2^26 cycles before they sleep

Case = Callable[[], object]
# The cases of one library by row, in the order in which ours come; rows that it lacks are left out.
Rows = Callable[[], Iterator[tuple[str, dict[str, Case]]]]


def _serve(connection: Any, rows: Rows) -> None:
    """The process of one library: offers its rows one by one, and times what it is asked for."""
    try:
        for name, cases in rows():
            connection.send((name, list(cases)))
            while (request := connection.recv()) is not None:
                case, repeats = request
                function = cases[case]
                start = time.perf_counter()
                for _ in range(repeats):
                    function()
                connection.send((time.perf_counter() - start) / repeats)
    except ImportError as error:
        print(f"{error.name} is not installed; its column is left out", file=sys.stderr)
    connection.send(None)


@dataclass
class Library:
    """The other end of a library's process."""

    connection: Any
    row: str | None = None
    cases: tuple[str, ...] = ()

    def advance(self) -> None:
        """Wait for the next row that it offers; None after the last."""
        offer = self.connection.recv()
        self.row, self.cases = (None, ()) if offer is None else (offer[0], tuple(offer[1]))

    def time(self, case: str, repeats: int) -> float:
        """Seconds of one call, on average."""
        self.connection.send((case, repeats))
        seconds: float = self.connection.recv()
        time.sleep(PAUSE)
        return seconds

    def leave_row(self) -> None:
        self.connection.send(None)
        self.advance()


def _measure(libraries: list[Library], seconds: float) -> dict[str, float]:
    """Median seconds of one call of each case: the cases take turns, so that noise hits all alike."""
    cases = [(library, case) for library in libraries for case in library.cases]
    repeats = []
    for library, case in cases:
        library.time(case, 1)
        once = max(library.time(case, 1), 1e-7)
        repeats.append(max(1, min(10000, int(seconds / ROUNDS / once))))
    times: list[list[float]] = [[] for _ in cases]
    for _ in range(ROUNDS):
        for k, (library, case) in enumerate(cases):
            times[k].append(library.time(case, repeats[k]))
    return {case: statistics.median(values) for (_, case), values in zip(cases, times, strict=True)}


def compare(
    title: str, libraries: list[Rows], remark: Callable[[str, dict[str, float]], str] = lambda name, times: ""
) -> dict[str, dict[str, float]]:
    """Run the rows of all libraries, of which ours is the first, print them and, with --json, write them.

    `remark` gives a note to a row from its seconds by case.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each case")
    parser.add_argument("--rows", default="", help="only rows whose names contain this")
    options = parser.parse_args()
    print(f"{title}; {THREADS} threads, {platform.machine()}, Python {platform.python_version()}", flush=True)
    spawn = multiprocessing.get_context("spawn")
    ends, processes = [], []
    for rows in libraries:
        ours, theirs = spawn.Pipe()
        processes.append(spawn.Process(target=_serve, args=(theirs, rows), daemon=True))
        processes[-1].start()
        ends.append(Library(ours))
    for library in ends:
        library.advance()
    results: dict[str, dict[str, float]] = {}
    while (name := ends[0].row) is not None:
        here = [library for library in ends if library.row == name]
        if options.rows in name:
            times = _measure(here, options.seconds)
            results[name] = times
            first = next(iter(times.values()))
            parts = [f"{case} {value * 1e3:.3f} ms" + (f" ({value / first:.2f}x)" if k else "")
                     for k, (case, value) in enumerate(times.items())]  # fmt: skip
            print(f"{name:>24}: " + ", ".join(parts) + remark(name, times), flush=True)
        for library in here:
            library.leave_row()
    if options.json:
        options.json.write_text(json.dumps({"title": title, "threads": THREADS, "seconds": results}, indent=2))
    return results


def best_peer(name: str, times: dict[str, float]) -> str:
    """A remark for `compare`: how our time compares with the best of the others."""
    others = [value for case, value in times.items() if case != "topstitch"]
    return f"; {times['topstitch'] / min(others):.2f} of the best peer's time" if others else ""


def first_runs(
    name: str, program: str, asked: tuple[float | None, float | None], runs: int = 5, arguments: Sequence[str] = ()
) -> None:
    """Time processes that run `program` with `arguments`, with an empty and with a filled kernel cache on disk.

    It prints the seconds of its imports, of building, and of compiling and running. `asked` are the bounds, in seconds.
    """
    with tempfile.TemporaryDirectory() as folder:

        def process(cache: str) -> tuple[float, list[float]]:
            environment = dict(os.environ, TOPSTITCH_CACHE_DIR=str(Path(folder) / cache))
            start = time.perf_counter()
            run = subprocess.run(
                [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=True
            )
            return time.perf_counter() - start, [float(part) for part in run.stdout.split()]

        for state, bound, cache in (("empty", asked[0], "cold{}"), ("filled", asked[1], "cold0")):
            times = [process(cache.format(k)) for k in range(runs)]
            whole = statistics.median(seconds for seconds, _ in times)
            imports, build, first = (statistics.median(parts[k] for _, parts in times) for k in range(3))
            print(
                f"{name}, {state} kernel cache: {whole * 1e3:.0f} ms from an empty process to its end"
                + (f" (asked: {bound * 1e3:.0f})" if bound else "")
                + f": imports {imports * 1e3:.0f}, building {build * 1e3:.0f}, compiling and running {first * 1e3:.0f}"
            )
