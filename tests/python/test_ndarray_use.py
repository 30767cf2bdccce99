"""NDArray in use: views, arithmetic through NumPy, display, lifetimes, threads; checked against NumPy."""

import copy
import gc
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topstitch as ts
from ndarray_cases import (
    NUMPY_DTYPES,
    LegacyDLPack,
    VersionedDLPack,
    WithArray,
    WithInterface,
    bits,
    strided_arrays,
    values,
)

# ---- Views ----

PARTS = st.one_of(
    st.integers(-5, 5),
    st.builds(slice, *[st.none() | st.integers(-6, 6)] * 2, st.none() | st.sampled_from([1, 2, 3, -1, -2])),
    st.just(...),
    st.none(),
)


@settings(max_examples=600, deadline=None)
@given(strided_arrays(), st.lists(PARTS, max_size=5).map(tuple) | PARTS)
def test_basic_indexing_is_numpys(a, key):
    try:
        expected = a[key]
    except IndexError:
        with pytest.raises(IndexError):
            ts.NDArray(a)[key]
        return
    got = ts.NDArray(a)[key]
    assert isinstance(got, ts.NDArray)
    assert got.shape == np.shape(expected)
    assert bits(got) == bits(expected)
    if got.size:
        assert np.shares_memory(got.numpy(), a)


def test_other_indexing_is_numpys():
    a = np.arange(12).reshape(3, 4)
    nd = ts.NDArray(a)
    for key in ([0, 2], np.array([1, 1]), a > 5, (slice(None), [3, 0]), True, np.array(2), (np.int64(1), np.uint8(2))):
        got = nd[key]
        assert isinstance(got, ts.NDArray)
        assert got.shape == np.shape(a[key])
        assert bits(got) == bits(a[key])
    assert bits(nd[ts.NDArray([2, 0])]) == bits(a[[2, 0]])
    assert bits(nd[ts.NDArray(a > 5)]) == bits(a[a > 5])
    for bad in (1.5, "x", (0, "y"), {}):
        with pytest.raises((IndexError, TypeError, ts.UserError)):
            nd[bad]
    for bad in (3, -4, 10**30, (0, 0, 0), (..., ...)):
        with pytest.raises(IndexError):
            nd[bad]
    with pytest.raises(TypeError):
        nd[1:"a"]
    with pytest.raises(ValueError, match="zero"):
        nd[::0]
    assert nd[:: 10**18].tolist() == a[:: 10**18].tolist()
    assert nd[:: -(2**63)].tolist() == a[:: -(2**63)].tolist()


@settings(max_examples=100, deadline=None)
@given(strided_arrays())
def test_transposes_and_reshapes_are_numpys(a):
    nd = ts.NDArray(a)
    assert bits(nd.T) == bits(a.T)
    assert bits(nd.transpose()) == bits(a.transpose())
    if a.ndim:
        order = [*range(1, a.ndim), 0]
        assert bits(nd.transpose(order)) == bits(a.transpose(order))
        assert bits(nd.transpose(*order)) == bits(a.transpose(*order))
    assert nd.reshape(a.size).tolist() == ts.NDArray(a.reshape(a.size)).tolist()
    assert nd.reshape((1, a.size, 1)).shape == (1, a.size, 1)
    if a.size:
        assert nd.reshape(-1).shape == (a.size,)


def test_bad_views():
    nd = ts.NDArray(np.arange(6).reshape(2, 3))
    assert nd.reshape(3, -1).shape == (3, 2)
    assert nd.reshape([3, 2]).shape == (3, 2)
    for bad in ((4,), (-1, -1), (5, -1), (-2, 3)):
        with pytest.raises(ts.UserError, match="reshape"):
            nd.reshape(bad)
    with pytest.raises(ts.DTypeError, match="integer"):
        nd.reshape(2.0, 3)
    with pytest.raises(ts.UserError, match="transpose"):
        nd.transpose(0, 0)
    with pytest.raises(ts.UserError, match="transpose"):
        nd.transpose(0, 2)
    with pytest.raises(ts.UserError, match="transpose"):
        nd.transpose(0)


# ---- NumPy arithmetic ----


def test_operators_are_numpys():
    a = np.array([[1.0, -2.0], [3.5, 4.0]], np.float32)
    b = np.array([2.0, 4.0], np.float32)
    na, nb = ts.NDArray(a), ts.NDArray(b)
    for expression in (
        "x + y", "x - y", "x * y", "x / y", "x // y", "x % y", "x ** y", "x @ y", "x == y", "x != y", "x < y", "x <= y",
        "x > y", "x >= y", "-x", "+x", "abs(x)", "divmod(x, y)[1]", "x + 1", "1 - x", "2 * x", "1 / x", "2 ** x",
        "7 % x", "7 // x",
        "divmod(9, x)[0]", "np.add(x, y)", "np.exp(x)", "x.mean()", "x.sum(axis=0)", "x.max()", "np.mean(x)",
        "np.sum(x, axis=1)", "x.argmax()",
        "np.where(x > 0, x, y)", "np.concatenate([x, y[None]])", "np.stack([x, x])", "x.std()", "x.flatten()",
        "x.clip(0, 1)", "np.reshape(x, (4, 1))",
        "np.transpose(x)", "np.zeros_like(x)", "np.result_type(x, y).type(3)", "np.broadcast_to(x, (2, 2, 2))",
        "np.finfo(x.dtype).eps", "np.max(x)", "np.allclose(x, x + 1e-9)", "np.linalg.norm(x)", "sum(x)",
        "x.T @ x", "[1, 2] + x", "x.round()",
    ):  # fmt: skip
        expected = eval(expression, {"x": a, "y": b, "np": np})
        for names in ({"x": na, "y": nb}, {"x": na, "y": b}, {"x": a, "y": nb}):
            got = eval(expression, {**names, "np": np})
            assert np.array_equal(np.asarray(got), expected), expression
            assert np.asarray(got).dtype == np.asarray(expected).dtype, expression
    i = np.array([5, 6], np.uint8)
    for expression in ("x & y", "x | y", "x ^ y", "x << y", "x >> y", "~x", "3 & x", "1 << x", "5 in x", "9 in x"):
        expected = eval(expression, {"x": i, "y": i})
        assert np.array_equal(eval(expression, {"x": ts.NDArray(i), "y": ts.NDArray(i)}), expected)


def test_bfloat16_arithmetic():
    a = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    nd = ts.NDArray(a)
    for got, expected in (
        (nd + nd, a + a),
        (a * nd, a * a),
        (nd.sum(), a.sum()),
        (np.exp(nd), np.exp(a)),
        (nd > 1, a > 1),
    ):
        assert np.array_equal(got, expected)
        assert got.dtype == expected.dtype
    assert nd.tolist() == [1.0, 2.5, -3.0]
    assert isinstance(nd.tolist()[0], float)
    assert isinstance(nd.item(1), float)
    assert float(nd[1]) == 2.5


def test_other_types_decide_for_themselves():
    class Symbolic:
        __array_ufunc__ = None

        def __radd__(self, other):
            return ("radd", type(other))

    assert (ts.NDArray([1, 2]) + Symbolic())[0] == "radd"
    assert (ts.NDArray([1, 2]) == "text") is False or not np.any(ts.NDArray([1, 2]) == "text")


def test_unknown_attributes():
    nd = ts.NDArray([1.0, 2.0])
    with pytest.raises(AttributeError, match="'NDArray' object has no attribute 'frobnicate'"):
        nd.frobnicate()
    assert not hasattr(nd, "_private")
    assert not hasattr(nd, "__array_struct__")
    assert {"mean", "shape", "numpy", "argsort"} <= set(dir(nd))
    with pytest.raises(AttributeError):
        nd.shape = (2, 1)


# ---- Scalars and sequences ----


def test_scalars():
    one = ts.NDArray(np.array([[2.75]], np.float32))
    assert float(one) == 2.75
    assert int(one) == 2
    assert complex(one) == 2.75
    assert bool(one)
    assert not ts.NDArray(0)
    assert one.item() == 2.75
    assert isinstance(one.item(), float)
    assert isinstance(ts.NDArray(3).item(), int)
    assert ts.NDArray([[1, 2], [3, 4]]).item(2) == 3
    assert ts.NDArray([[1, 2], [3, 4]]).item(1, 0) == 3
    assert list(range(ts.NDArray(np.uint8(3)))) == [0, 1, 2]
    assert f"{ts.NDArray(1.23456):.2f}" == "1.23"
    assert f"{ts.NDArray([1, 2])}" == "[1 2]"
    many = ts.NDArray([1, 2])
    with pytest.raises(TypeError, match="one element"):
        float(many)
    with pytest.raises(TypeError, match="one element"):
        int(many)
    with pytest.raises(ValueError, match=r"any\(\)"):
        bool(many)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(ts.NDArray([]))
    with pytest.raises(TypeError, match="index"):
        range(ts.NDArray(1.0))
    with pytest.raises(TypeError, match="index"):
        range(ts.NDArray([1]))
    with pytest.raises(ValueError, match=r"size 1|one|convert"):
        many.item()
    with pytest.raises(TypeError):
        hash(many)


@pytest.mark.parametrize("dtype", [*"?bhilBHILefdF", "bfloat16"])
def test_items_are_python_numbers(dtype):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    kind = np.dtype(dtype).kind
    values = [0, 1]
    if kind in "iu":
        values += [np.iinfo(dtype).min, np.iinfo(dtype).max]
    elif kind != "b":
        limits = ml_dtypes.finfo(dtype)
        values += [-2.75, float(limits.max), float(limits.smallest_subnormal), -np.inf, np.nan]
    if kind == "c":
        values += [1.5 - 2.5j]
    for value in values:
        array = np.array([value], dtype)
        wanted = array.astype(np.float32).item() if dtype is ml_dtypes.bfloat16 else array.item()
        for got in (ts.NDArray(array).item(), ts.NDArray(np.array([3, value], dtype))[::-1][0].item()):
            assert type(got) is type(wanted)
            assert got == wanted or (got != got and wanted != wanted)


def test_sequences():
    nd = ts.NDArray([[1, 2], [3, 4], [5, 6]])
    assert len(nd) == 3
    rows = list(nd)
    assert all(isinstance(row, ts.NDArray) for row in rows)
    assert [row.tolist() for row in rows] == [[1, 2], [3, 4], [5, 6]]
    assert [int(x) for x in nd[0]] == [1, 2]
    assert [row.tolist() for row in reversed(nd)] == [[5, 6], [3, 4], [1, 2]]
    first, *_rest = nd
    assert first.tolist() == [1, 2]
    scalar = ts.NDArray(1)
    with pytest.raises(TypeError, match="no length"):
        len(scalar)
    with pytest.raises(TypeError, match="no length"):
        iter(scalar)


@pytest.mark.parametrize("name", sorted(NUMPY_DTYPES))
def test_pickle_and_lists(name):
    a = values(name, (2, 3)).T
    nd = pickle.loads(pickle.dumps(ts.NDArray(a)))
    assert isinstance(nd, ts.NDArray)
    assert nd.dtype == name
    assert bits(nd) == bits(a)
    assert (
        ts.NDArray(a).tolist()
        == a.astype("complex128" if name == "complex64" else "float64" if "float" in name else name).tolist()
    )


def test_repr():
    assert repr(ts.NDArray(np.array([[1, 2.5]], np.float32))) == "NDArray([[1. , 2.5]], dtype=float32)"
    assert repr(ts.NDArray(np.int8(3))) == "NDArray(3, dtype=int8)"
    assert repr(ts.NDArray(np.zeros((0, 3)))) == "NDArray([], shape=(0, 3), dtype=float64)"
    assert repr(ts.NDArray(np.zeros(0, bool))) == "NDArray([], dtype=bool)"
    assert repr(ts.NDArray([[1, 2], [3, 4]])) == "NDArray([[1, 2],\n         [3, 4]], dtype=int64)"
    assert repr(ts.NDArray(np.ones(2, ml_dtypes.bfloat16))) == "NDArray([1, 1], dtype=bfloat16)"
    assert "..." in repr(ts.NDArray(np.zeros((100, 100))))
    assert str(ts.NDArray([1, 2])) == "[1 2]"
    with np.printoptions(precision=2):
        assert repr(ts.NDArray([0.12345])) == "NDArray([0.12], dtype=float64)"


def test_html():
    html = ts.NDArray(np.arange(12).reshape(3, 4))._repr_html_()
    assert "(3, 4) int64" in html
    assert html.count("<tr>") == 3
    assert html.count("<td>") == 12
    assert "<td>11</td>" in html
    long = ts.NDArray(np.zeros((1000, 1000)))._repr_html_()
    assert long.count("<tr>") == 11
    assert long.count("<td>") == 121
    assert "<td>2.5</td>" in ts.NDArray([1.0, 2.5])._repr_html_()
    assert "empty" in ts.NDArray([])._repr_html_()
    assert "<pre>7</pre>" in ts.NDArray(7)._repr_html_()
    assert "<pre>[[[" in ts.NDArray(np.zeros((2, 2, 2)))._repr_html_()
    assert "<td>1.5</td>" in ts.NDArray(np.array([1.5], ml_dtypes.bfloat16))._repr_html_()


# ---- DType ----


@pytest.mark.parametrize("name", sorted(NUMPY_DTYPES))
def test_dtypes(name):
    dtype = getattr(ts, "bool_" if name == "bool" else name)
    assert isinstance(dtype, ts.DType)
    assert dtype.name == name
    assert str(dtype) == name
    assert eval(repr(dtype), {"topstitch": ts}) is dtype
    assert dtype.itemsize == np.dtype(NUMPY_DTYPES[name]).itemsize
    assert dtype.numpy == np.dtype(NUMPY_DTYPES[name])
    assert np.dtype(dtype) == np.dtype(NUMPY_DTYPES[name])
    assert np.zeros(2, dtype=dtype).dtype == dtype
    assert hash(dtype) == hash(np.dtype(NUMPY_DTYPES[name]))
    assert {dtype: 1}[np.dtype(NUMPY_DTYPES[name])] == 1
    assert np.dtype(NUMPY_DTYPES[name]) == dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
    kinds = (dtype.is_floating, dtype.is_integer, dtype.is_complex)
    assert kinds == ("float" in name, "int" in name, "complex" in name)
    for same in (dtype, name, np.dtype(NUMPY_DTYPES[name]), NUMPY_DTYPES[name]):
        assert ts.DType.of(same) is dtype
        assert dtype == same
        assert not dtype.__ne__(same)
    for other in NUMPY_DTYPES:
        assert (dtype == other) == (other == name)
    assert dtype != "nonsense"
    assert dtype != 3
    assert dtype is not None
    assert (dtype == None) is False  # noqa: E711
    assert {dtype: 1}[ts.DType.of(name)] == 1


def test_dtypes_of_python_types():
    assert ts.DType.of(float) is ts.float64
    assert ts.DType.of(int) == np.dtype(int)
    assert ts.DType.of(bool) is ts.bool_
    assert ts.DType.of("f4") is ts.float32
    assert ts.DType.of(np.zeros(1, np.int8).dtype) is ts.int8


@pytest.mark.parametrize(
    "bad",
    [
        "float31",
        "",
        3,
        None,
        (1, 2),
        [],
        object(),
        ">f4",
        "S3",
        complex,
        object,
        str,
        {"names": ["a"], "formats": ["f4"]},
        np.array,
    ],
)
def test_bad_dtypes(bad):
    with pytest.raises(ts.DTypeError, match="allowed are bool, int8"):
        ts.DType.of(bad)
    if bad is not None:
        with pytest.raises(ts.DTypeError):
            ts.NDArray([1], dtype=bad)


# ---- Errors ----


def test_exception_classes():
    for cls, builtin in (
        (ts.UserError, ValueError),
        (ts.DTypeError, TypeError),
        (ts.DTypeError, ts.UserError),
        (ts.UnsupportedError, NotImplementedError),
        (ts.OutOfMemoryError, MemoryError),
        (ts.InternalError, RuntimeError),
    ):
        assert issubclass(cls, builtin)
        assert issubclass(cls, ts.TopstitchError)
        assert cls.__module__ == "topstitch"
        assert cls.__doc__
        assert pickle.loads(pickle.dumps(cls("why"))).args == ("why",)
    assert issubclass(ts.TopstitchError, Exception)
    assert not issubclass(ts.UserError, TypeError)


# ---- Lifetimes ----


class Tracked(np.ndarray):
    """An array that can be watched by weak reference."""


def tracked(shape=(1000,)):
    a = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape).view(Tracked)
    return a, weakref.ref(a)


def test_source_lives_as_long_as_any_view():
    a, ref = tracked((10, 10))
    views = [
        ts.NDArray(a),
        ts.NDArray(a)[2:].T[::-1],
        ts.NDArray(a).reshape(100),
        ts.NDArray(ts.NDArray(a)),
        ts.NDArray(a).numpy()[3:],
    ]
    views += [
        memoryview(ts.NDArray(a)),
        np.asarray(ts.NDArray(a)),
        np.from_dlpack(ts.NDArray(a)),
        ts.NDArray(VersionedDLPack(ts.NDArray(a))),
    ]
    views += [next(iter(ts.NDArray(a))), ts.NDArray(a).mean, ts.NDArray(WithArray(a)), ts.NDArray(WithInterface(a))]
    del a
    while views:
        gc.collect()
        assert ref() is not None
        view = views.pop()
        if isinstance(view, (memoryview, np.ndarray, ts.NDArray)):
            assert np.isfinite(np.asarray(view)).all()
        del view
    gc.collect()
    assert ref() is None


def test_reference_counts_are_balanced():
    a = np.zeros((3, 4))
    before = sys.getrefcount(a)
    for _ in range(200):
        nd = ts.NDArray(a)
        nd[1:].T.numpy().sum()
        nd + nd
        memoryview(nd).release()
        np.from_dlpack(nd)
        ts.NDArray(LegacyDLPack(a))
        ts.NDArray(VersionedDLPack(a))
        repr(nd)
        nd._repr_html_()
        for bad in ((9, 9), "x", 1.5):
            with pytest.raises((IndexError, TypeError, ts.UserError)):
                nd[bad]
        del nd
    gc.collect()
    assert sys.getrefcount(a) == before


def test_refused_sources_are_let_go():
    a, ref = tracked()
    for _ in range(3):
        with pytest.raises(ts.DTypeError):
            ts.NDArray([a, None])
    masked = np.ma.masked_array(a, False)
    with pytest.raises(ts.DTypeError):
        ts.NDArray(masked)
    del a, masked
    gc.collect()
    assert ref() is None


def test_memory_of_owned_arrays_outlives_them():
    nd = ts.NDArray(np.arange(100000), copy=True)
    out = nd.numpy()
    part = np.asarray(nd[500:600])
    external = np.from_dlpack(nd)
    del nd
    gc.collect()
    rubbish = [ts.NDArray(np.full(100000, -1), copy=True) for _ in range(5)]  # would reuse the block
    assert out[99999] == 99999
    assert part[0] == 500
    assert external[7] == 7
    assert len(rubbish) == 5


def test_threads():
    a = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)
    expected = a.T.copy()
    errors = []

    def work():
        try:
            for _ in range(20):
                nd = ts.NDArray(a)
                packed = nd.T.copy()  # 1 MiB: copied without the GIL
                if not np.array_equal(packed.numpy(), expected):
                    errors.append("wrong copy")
                np.from_dlpack(packed[::2, 1:]).sum()
                ts.NDArray([1, 2, 3], dtype="bfloat16").tolist()
        except Exception as error:
            errors.append(error)

    before = sys.getrefcount(a)
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    gc.collect()
    assert sys.getrefcount(a) == before


@pytest.mark.parametrize(
    "code",
    [
        "keep = ts.NDArray(np.zeros(1000))",
        "ts.keep = ts.NDArray(np.zeros(1000)).numpy()",
        (
            "import builtins\nzeros = lambda: ts.NDArray(np.zeros(9))\n"
            "builtins.keep = [memoryview(zeros()), np.from_dlpack(zeros())]"
        ),
        "cycle = [ts.NDArray(np.zeros(1000))]; cycle.append(cycle)",
        "import atexit; keep = ts.NDArray(np.zeros(9)); atexit.register(lambda: keep.copy())",
        "capsule = ts.NDArray(np.zeros(9)).__dlpack__()",
        (
            "import threading, time\nkeep = ts.NDArray(np.zeros(1 << 20))\n"
            "def work():\n    while True: keep[::2].copy()\n"
            "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)"
        ),
    ],
)
def test_interpreter_shutdown_is_clean(code):
    program = textwrap.dedent("import numpy as np\nimport topstitch as ts\n") + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
