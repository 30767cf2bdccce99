"""What the benchmarks share: alternating, repeated timings, and a table of ratios.

Peers that are not installed are left out. Every script prints a table and, with --json FILE, writes the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TOPSTITCH_NUM_THREADS"):
    os.environ.setdefault(_variable, str(THREADS))
os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={THREADS}")
# Older OpenBLAS builds are steered by these; a fair figure of today's NumPy needs them away.
for _variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(_variable, None)

Case = Callable[[], object]


def measure(cases: dict[str, Case], seconds: float = 1.0, rounds: int = 9) -> dict[str, float]:
    """Median seconds of one call of each case: the cases take turns, so that noise hits all alike."""
    repeats = {}
    for name, case in cases.items():
        case()
        start = time.perf_counter()
        case()
        once = max(time.perf_counter() - start, 1e-7)
        repeats[name] = max(1, min(10000, int(seconds / rounds / once)))
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                case()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(values) for name, values in times.items()}


class Table:
    """Collects rows of timings, prints them as ratios to topstitch, and writes them as JSON."""

    def __init__(self, title: str) -> None:
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--json", type=Path, help="write the figures into this file")
        parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each case")
        self.options = parser.parse_args()
        self.title = title
        self.rows: dict[str, dict[str, float]] = {}
        print(f"{title}; {THREADS} threads, {platform.machine()}, Python {platform.python_version()}")

    def row(self, name: str, cases: dict[str, Case]) -> dict[str, float]:
        """Measure and print one row; the first case is ours."""
        times = measure(cases, self.options.seconds)
        self.rows[name] = times
        ours = next(iter(times.values()))
        parts = [f"{case} {seconds * 1e3:.3f} ms" + (f" ({seconds / ours:.2f}x)" if k else "")
                 for k, (case, seconds) in enumerate(times.items())]  # fmt: skip
        print(f"{name:>24}: " + ", ".join(parts), flush=True)
        return times

    def finish(self) -> None:
        """Write the JSON, if asked for."""
        if self.options.json:
            self.options.json.write_text(
                json.dumps({"title": self.title, "threads": THREADS, "seconds": self.rows}, indent=2)
            )


def optional_import(name: str) -> object | None:
    """The module, or None with a note when it is not installed."""
    try:
        return __import__(name)
    except ImportError:
        print(f"{name} is not installed; its column is left out", file=sys.stderr)
        return None
