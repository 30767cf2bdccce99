"""Profiles: counts of bytes and FLOPs by hand, a table, and a trace in the format of the trace viewers.

Nothing here looks at how long anything took.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import topstitch as ts


def _executable() -> ts.Executable:
    graph = ts.Graph()
    x = graph.placeholder((64, 32), name="x")
    w = graph.constant(np.full((32, 48), 0.5, np.float32), name="w")
    return graph.compile([x], ts.relu(x @ w, name="activation"))


def test_counts() -> None:
    profile = _executable().profile(np.ones((64, 32), np.float32), runs=3)
    assert profile.runs == 3
    assert sum(kernel["flops"] for kernel in profile.kernels) >= 2 * 64 * 32 * 48
    last = profile.kernels[-1]
    assert last["bytes_written"] == 64 * 48 * 4
    assert any("activation" in operation for operation in last["operations"])
    assert 0 < last["microseconds"] <= profile.run_microseconds * 1.5
    for kernel in profile.kernels:
        assert kernel["threads"] >= 1
        assert kernel["share_of_bandwidth"] == pytest.approx(kernel["bytes_per_second"] / profile.bandwidth_limit)
        assert kernel["share_of_flops"] == pytest.approx(kernel["flops_per_second"] / profile.flops_limit)


def test_an_elementwise_kernel_counts_each_array_once() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1,), name="x")
    executable = graph.compile([x], x * x + 1)
    for size in (1000, 3000):
        (kernel,) = executable.profile(np.ones(size, np.float32), runs=1).kernels
        assert (kernel["bytes_read"], kernel["bytes_written"], kernel["flops"]) == (4 * size, 4 * size, 2 * size)


def test_table_names_kernels_and_limits() -> None:
    text = str(_executable().profile(np.ones((64, 32), np.float32)))
    assert "limits measured here" in text
    assert "GFLOP/s" in text
    assert "matmul" in text


def test_trace(tmp_path: Path) -> None:
    profile = _executable().profile(np.ones((64, 32), np.float32))
    path = tmp_path / "trace.json"
    profile.save_trace(path)
    trace = json.loads(path.read_text(encoding="utf-8"))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 and "tid" in event and "pid" in event for event in spans)
    tracks = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert {tracks[event["tid"]] for event in spans} >= {"compilation", "run", "kernels"}
    (run,) = [event for event in spans if tracks[event["tid"]] == "run"]
    for event in spans:
        if tracks[event["tid"]] == "kernels":
            assert run["ts"] <= event["ts"]
            assert event["ts"] + event["dur"] <= run["ts"] + run["dur"] + 0.01


def test_names_that_json_has_to_escape() -> None:
    graph = ts.Graph()
    x = graph.placeholder((4,), name="x")
    executable = graph.compile([x], ts.exp(x, name='a "b" \\ \n\té'))
    assert json.loads(executable.profile(np.zeros(4, np.float32)).trace_json())


def test_variables_are_updated_as_in_any_run() -> None:
    graph = ts.Graph()
    count = graph.variable(np.zeros((), np.int64), name="count")
    executable = graph.compile([], None, [graph.assign(count, count + 1)])
    executable.profile(runs=5)
    assert int(np.asarray(graph.variable_value(count))) == 6  # one run warms up


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at least 1 run"):
        _executable().profile(np.ones((64, 32), np.float32), runs=0)
    with pytest.raises(ValueError, match="axis 0 must be 64"):
        _executable().profile(np.ones((63, 32), np.float32))
