"""Bad input: each mistake gives an exception that says what was received and how to mend it, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topstitch as ts

A = np.ones((3, 4), np.float32)


class Fixture:
    """A small graph: y = x @ w, with an update of w, and a tensor of another graph."""

    def __init__(self) -> None:
        self.g = ts.Graph()
        self.x = self.g.placeholder((-1, 4), name="x")
        self.w = self.g.variable(np.ones((4, 2), np.float32), name="w")
        self.y = self.x @ self.w
        self.i = self.g.placeholder((3,), dtype="int32", name="i")
        self.double = self.g.assign(self.w, self.w * 2.0)
        self.other = ts.Graph().placeholder((2,), name="other")


@pytest.fixture
def f() -> Fixture:
    return Fixture()


def _two_dims(f: Fixture, a: Any, b: Any) -> Any:
    left, right = f.g.placeholder((a,)), f.g.placeholder((b,))
    return f.g.run({left: np.ones(3, np.float32), right: np.ones(4, np.float32)}, left + right)


ROWS: dict[str, tuple[Callable[[Fixture], Any], type[Exception], str]] = {
    "wrong feed shape": (lambda f: f.g.run({f.x: np.ones((3, 5), np.float32)}, f.y), ValueError, "axis 1 must be 4"),
    "wrong feed rank": (lambda f: f.g.run({f.x: np.ones(3, np.float32)}, f.y), ValueError, "rank 2"),
    "wrong feed dtype": (lambda f: f.g.run({f.x: np.ones((3, 4))}, f.y), TypeError, r"astype\('float32'\)"),
    "missing feed": (lambda f: f.g.run({}, f.y), ValueError, "placeholder 'x' is needed"),
    "fed tensor": (lambda f: f.g.run({f.y: A}, f.y), ValueError, "only placeholders can be fed"),
    "fed name": (lambda f: f.g.run({"x": A}, f.y), TypeError, "keys of feeds"),  # type: ignore[dict-item]
    "feeds as list": (lambda f: f.g.run([A], f.y), TypeError, "feeds must be a dict"),  # type: ignore[arg-type]
    "foreign feed": (lambda f: f.g.run({f.x: A, f.other: A}, f.y), ValueError, "another graph"),
    "foreign target": (lambda f: f.g.run({f.x: A}, f.other), ValueError, "another graph"),
    "foreign input": (lambda f: f.x + f.other, ValueError, "graph"),
    "operation as target": (lambda f: f.g.run({f.x: A}, [f.double]), TypeError, "operations="),  # type: ignore[list-item]
    "nothing to do": (lambda f: f.g.run({f.x: A}), ValueError, "nothing to do"),
    "axis out of range": (lambda f: ts.sum(f.x, axis=5), ValueError, "axis 5 is out of range"),
    "repeated axis": (lambda f: ts.sum(f.x, axis=(0, 0)), ValueError, "axis|axes"),
    "NaN axis": (lambda f: ts.sum(f.x, axis=float("nan")), TypeError, "must be an integer"),  # type: ignore[arg-type]
    "17 dims": (lambda f: f.g.placeholder((1,) * 17), ValueError, "at most 16"),
    "array of 17 dims": (lambda f: f.g.constant(np.ones((1,) * 17)), ValueError, "at most 16"),
    "negative size": (lambda f: f.g.placeholder((-2, 3)), ValueError, "-2"),
    "object array": (lambda f: f.g.run({f.x: np.array([[None] * 4])}, f.y), TypeError, "object"),
    "big-endian array": (lambda f: f.g.run({f.x: A.astype(">f4")}, f.y), TypeError, "byte order"),
    "complex128 array": (lambda f: f.g.constant(np.ones(2, np.complex128)), TypeError, "complex64"),
    "string array": (lambda f: f.g.constant(np.array(["a"])), TypeError, "str|<U1|text"),
    "mixed dtypes": (lambda f: f.x + f.g.placeholder((), dtype="int32"), TypeError, "use cast"),
    "integer division": (lambda f: f.i / 2, TypeError, "floor_divide"),
    "shapes of a product": (lambda f: f.x @ np.ones((5, 2), np.float32), ValueError, "must equal"),
    "shapes of a sum": (lambda f: f.w + np.ones((3, 2), np.float32), ValueError, "broadcast"),
    "reshape": (lambda f: ts.reshape(f.w, (3, -1)), ValueError, "8 elements"),
    "two inferred dims": (lambda f: ts.reshape(f.w, (-1, -1)), ValueError, "-1|infer"),
    "index out of range": (lambda f: f.w[4], IndexError, "out of range"),
    "index by text": (lambda f: f.w["a"], TypeError, "integers, slices"),
    "step of zero": (lambda f: f.w[::0], ValueError, "step"),
    "truth of a tensor": (lambda f: bool(f.x), TypeError, "where"),
    "iteration": (lambda f: list(f.x), TypeError, "iterated"),
    "unknown argument": (lambda f: ts.sum(f.x, axs=1), TypeError, "axs"),  # type: ignore[call-arg]
    "missing argument": (lambda f: ts.add(f.x), TypeError, "'b'"),  # type: ignore[call-arg]
    "assign another shape": (lambda f: f.g.assign(f.w, np.ones(3, np.float32)), ValueError, "keeps its shape"),
    "assign to no variable": (lambda f: f.g.assign(f.y, f.y), ValueError, "must be a variable"),
    "unordered assignments": (
        lambda f: f.g.run({}, [], [f.double, f.g.assign(f.w, f.w * 3.0)]),
        ValueError,
        "assigned twice",
    ),
    "named dims disagree": (lambda f: _two_dims(f, "n", "n"), ValueError, 'dim "n" is 4'),
    "dynamic dims disagree": (lambda f: _two_dims(f, -1, -1), ValueError, r"\(3,\) and \(4,\)"),
    "integer gradient": (lambda f: ts.gradients(ts.sum(f.y), [f.i]), TypeError, "not floating-point"),
    "not differentiable": (
        lambda f: ts.gradients(ts.sum(ts.cast(ts.bitcast(f.x, "float16"), "float32")), [f.x]),
        ValueError,
        "bitcast.*because.*stop_gradient",
    ),
    "integer overflow": (lambda f: f.i + 2**40, ValueError, "out of range"),
    "fraction for an integer": (lambda f: f.i + 0.5, TypeError, "int32"),
    "bad dtype": (lambda f: f.g.placeholder((2,), dtype="float31"), TypeError, "float31"),
    "bad choice": (lambda f: ts.gelu(f.x, approximate="never"), ValueError, "none.*tanh|tanh.*none"),
    "negative threads": (lambda f: f.g.run({f.x: A}, f.y, threads=-1), ValueError, "threads"),
    "zero threads": (lambda f: ts.set_num_threads(0), ValueError, "at least 1"),
    "unknown source": (lambda f: f.g.compile([f.x], f.y).source("ptx"), ValueError, "loopir"),
    "too many inputs": (lambda f: f.g.compile([f.x], f.y).run(A, A), ValueError, "takes 1 inputs"),
    "shape of out": (
        lambda f: f.g.compile([f.x], f.y).run(A, out=np.ones((3, 3), np.float32)),
        ValueError,
        r"\(3, 2\)",
    ),
    "compile for a wrong shape": (lambda f: f.g.compile({f.x: ts.ShapedType((3, 5))}, f.y), ValueError, "declared"),
    "compile without a feed": (
        lambda f: f.g.compile({f.x: ts.ShapedType((-1, 4))}, f.y + f.g.placeholder((-1, 2), name="z")),
        ValueError,
        "placeholder 'z' is needed",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_mistake(name: str, f: Fixture) -> None:
    action, kind, text = ROWS[name]
    with pytest.raises(kind, match=text) as caught:
        action(f)
    if not isinstance(caught.value, IndexError) and "argument" not in name and name != "index by text":
        assert isinstance(caught.value, ts.TopstitchError)
    np.testing.assert_array_equal(f.g.variable_value(f.w), np.ones((4, 2), np.float32))
    assert float(np.asarray(f.g.run({f.x: A}, f.y))[0, 0]) == 4  # and the graph still works


def test_message_names_the_line() -> None:
    graph = ts.Graph()
    x = graph.placeholder((2, 3))
    with pytest.raises(ValueError, match=r"test_errors\.py:\d+"):
        ts.matmul(x, x)


def test_failing_run_changes_nothing(f: Fixture) -> None:
    """All memory is reserved before the first kernel, so a run that cannot have it leaves variables alone."""
    huge = ts.sum(ts.exp(ts.broadcast_to(f.x[0, 0], (2**20, 2**20))), axis=0)
    kept = ts.reshape(ts.sort(huge), (-1,)) if hasattr(ts, "sort") else huge
    with pytest.raises((MemoryError, ValueError)):
        f.g.run({f.x: A}, [ts.broadcast_to(kept, (2**22, 2**20))], [f.double])
    np.testing.assert_array_equal(f.g.variable_value(f.w), np.ones((4, 2), np.float32))


@pytest.mark.parametrize("shape", [(2**40, 2**10), (2**40, 2**40), (2**62, 4)])
def test_sizes_that_no_machine_has(shape: tuple[int, ...]) -> None:
    graph = ts.Graph()
    x = graph.placeholder(())
    with pytest.raises((MemoryError, ValueError)):
        graph.run({x: 1.0}, ts.broadcast_to(x, shape))


def test_integer_division_by_zero_is_zero() -> None:
    graph = ts.Graph()
    a, b = graph.placeholder((4,), dtype="int32"), graph.placeholder((4,), dtype="int32")
    feeds = {a: np.array([7, -7, 0, -(2**31)], np.int32), b: np.array([0, 0, 0, -1], np.int32)}
    targets = [ts.floor_divide(a, b), ts.truncate_divide(a, b), ts.remainder(a, b), ts.fmod(a, b)]
    quotient, truncated, remainder, fmod = graph.run(feeds, targets)
    np.testing.assert_array_equal(quotient, [0, 0, 0, -(2**31)])
    np.testing.assert_array_equal(truncated, [0, 0, 0, -(2**31)])
    np.testing.assert_array_equal(remainder, [0, 0, 0, 0])
    np.testing.assert_array_equal(fmod, [0, 0, 0, 0])


def test_chain_of_ten_thousand_operations() -> None:
    graph = ts.Graph()
    x = graph.placeholder((2,))
    y = x
    for _ in range(10_000):
        y = y * 1.0001
    gradient = ts.gradients(ts.sum(y), [x])[x]
    value, slope = graph.run({x: np.ones(2, np.float32)}, [y, gradient])
    expected = 1.0001**10_000
    np.testing.assert_allclose(value, expected, rtol=2e-3)
    np.testing.assert_allclose(slope, expected, rtol=2e-3)


@pytest.mark.parametrize(
    "kind", [ts.Graph, ts.Tensor, ts.Operation, ts.Executable, ts.Report, ts.NDArray, ts.ShapedType, ts.DType]
)
def test_objects_without_init_are_refused(kind: type) -> None:
    with pytest.raises(TypeError, match="before its __init__ was called"):
        repr(kind.__new__(kind))


def test_subclass_that_uses_itself_too_early() -> None:
    class Network(ts.Graph):
        def __init__(self) -> None:
            self.placeholder((2,))
            super().__init__()

    with pytest.raises(TypeError, match="before its __init__ was called"):
        Network()


def test_metal_in_a_build_without_it() -> None:
    if any(device.type == "metal" for device in ts.devices()):
        pytest.skip("this build has Metal")
    with pytest.raises(ts.UnsupportedError, match="this build of topstitch has no Metal"):
        ts.metal.device(1)
    with pytest.raises(ts.UserError, match='there is no device "metal" here; there is "cpu"'):
        ts.Device("metal")
