"""ts.from_buffer: arrays over any buffer, without copies, checked against NumPy's view of the same bytes.

A buffer in use can neither be resized nor closed, and no view reaches outside of it.
"""

import array
import ctypes
import gc
import mmap
import sys
from multiprocessing import shared_memory

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topstitch as ts
from ndarray_cases import NUMPY_DTYPES, address, bits, values

DATA = np.arange(24, dtype=np.float32).tobytes()


def start_of(buffer):
    return address(np.frombuffer(buffer, np.uint8))


# ---- Sources ----


@pytest.mark.parametrize(
    ("make", "readonly"),
    [
        (lambda: DATA, True),
        (lambda: bytearray(DATA), False),
        (lambda: memoryview(DATA), True),
        (lambda: memoryview(bytearray(DATA))[:], False),
        (lambda: array.array("d", bytes(DATA)), False),
        (lambda: (ctypes.c_float * 24).from_buffer_copy(DATA), False),
        (lambda: (ctypes.c_double * 4 * 3).from_buffer_copy(DATA), False),
        (lambda: np.frombuffer(DATA, np.int16), True),
        (lambda: np.array(range(24), np.float32).reshape(2, 3, 4), False),
        (lambda: np.frombuffer(DATA, [("Only", "<f4"), ("other", "<i4")]), True),
        (lambda: ts.NDArray(np.arange(24, dtype=np.float32)), False),
    ],
)
def test_sources_are_viewed(make, readonly):
    source = make()
    nd = ts.from_buffer(source, (4, 6))
    assert isinstance(nd, ts.NDArray)
    assert nd.shape == (4, 6)
    assert nd.strides == (24, 4)
    assert nd.dtype == "float32"
    assert nd.readonly == readonly
    assert bits(nd) == DATA
    assert address(nd.numpy()) == start_of(source)


@pytest.mark.parametrize("name", sorted(NUMPY_DTYPES))
def test_dtypes(name):
    expected = values(name, (3, 4))
    memory = bytearray(8) + expected.tobytes()
    for dtype in (name, ts.DType.of(name), NUMPY_DTYPES[name]):
        nd = ts.from_buffer(memory, (-1, 4), dtype, offset=8)
        assert nd.dtype == NUMPY_DTYPES[name]
        assert nd.shape == (3, 4)
        assert bits(nd) == bits(expected)


def test_writes_are_seen_on_both_sides():
    memory = bytearray(12)
    nd = ts.from_buffer(memory, 3, "int32")
    memory[4] = 7
    assert nd.tolist() == [0, 7, 0]
    nd[2] = 1
    assert memory[8] == 1


def test_a_run_reads_and_writes_the_buffer():
    g = ts.Graph()
    x = g.placeholder((2, 3))
    exe = g.compile([x], x + 1)
    memory = bytearray(np.arange(6, dtype=np.float32).tobytes())
    exe.run(ts.from_buffer(memory, (2, 3)), out=ts.from_buffer(memory, (2, 3)))
    assert np.frombuffer(memory, np.float32).tolist() == [1, 2, 3, 4, 5, 6]


# ---- Layouts ----


def test_row_bytes():
    memory = np.arange(64, dtype=np.uint8).tobytes()
    for shape, expected in {
        (3, 2): (16, 4),
        (2, 2, 2): (32, 16, 4),
        (1, 2, 2, 2): (64, 32, 16, 4),
        (2,): (4,),
        (4, 4): (16, 4),
    }.items():
        nd = ts.from_buffer(memory, shape, row_bytes=16)
        assert nd.strides == expected
        assert bits(nd) == bits(np.ndarray(shape, np.float32, memory, 0, expected))
    assert ts.from_buffer(memory, (-1, 2), row_bytes=16).shape == (4, 2)
    assert ts.from_buffer(memory, (-1, 2), row_bytes=16, offset=8).shape == (4, 2)  # the last row is not padded
    assert ts.from_buffer(memory, (-1, 3), row_bytes=16, offset=8).shape == (3, 3)
    assert ts.from_buffer(memory, (-1, 2, 3), row_bytes=16).shape == (2, 2, 3)
    assert ts.from_buffer(memory, (2, -1, 3), row_bytes=16).shape == (2, 2, 3)
    assert ts.from_buffer(memory, (2, -1), row_bytes=16).shape == (2, 4)
    assert ts.from_buffer(b"", (-1, 2), row_bytes=16).shape == (0, 2)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_strides_against_numpy(data):
    """Whatever NumPy views inside of a buffer, we do; whatever it refuses, we refuse."""
    rank = data.draw(st.integers(0, 4))
    shape = data.draw(st.tuples(*[st.integers(0, 4)] * rank))
    strides = data.draw(st.tuples(*[st.integers(-24, 24)] * rank))
    offset = data.draw(st.integers(0, 66))
    memory = np.arange(64, dtype=np.uint8)
    try:
        expected = np.ndarray(shape, np.int16, memory, offset, strides)
    except (ValueError, TypeError):
        expected = None
    empty = 0 in shape and offset <= 64
    if empty or (expected is not None and expected.flags.aligned):
        nd = ts.from_buffer(memory, shape, "int16", offset=offset, strides=strides)
        assert nd.shape == shape
        if not empty:
            assert bits(nd) == bits(expected)
            assert nd.strides == expected.strides
    else:
        with pytest.raises(ts.UserError, match=r"buffer of 64|aligned|multiples of 2"):
            ts.from_buffer(memory, shape, "int16", offset=offset, strides=strides)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_minus_one_takes_the_most_that_fits(data):
    others = data.draw(st.lists(st.integers(1, 3), max_size=2))
    axis = data.draw(st.integers(0, len(others)))
    strides = [data.draw(st.integers(-12, 12).filter(bool)) for _ in range(len(others) + 1)]
    offset = data.draw(st.integers(0, 64))
    memory = np.zeros(64, np.uint8)
    shape = [*others[:axis], -1, *others[axis:]]
    nd = ts.from_buffer(memory, shape, "int8", offset=offset, strides=strides)
    size = nd.shape[axis]
    more = [*others[:axis], size + 1, *others[axis:]]
    with pytest.raises(ts.UserError, match="buffer of 64"):
        ts.from_buffer(memory, more, "int8", offset=offset, strides=strides)


def test_minus_one():
    memory = bytearray(48)
    assert ts.from_buffer(memory, -1).shape == (12,)
    assert ts.from_buffer(memory, (3, -1)).shape == (3, 4)
    assert ts.from_buffer(memory, np.array([3, -1]), strides=np.array([16, 4])).shape == (3, 4)
    assert ts.from_buffer(memory, np.int64(12), offset=np.uint8(0)).shape == (12,)
    assert ts.from_buffer(memory, (-1, 4), offset=16).shape == (2, 4)
    assert ts.from_buffer(memory, (-1, 4), offset=48).shape == (0, 4)
    assert ts.from_buffer(b"", -1).shape == (0,)
    assert ts.from_buffer(memory, -1, offset=44, strides=[-8]).shape == (6,)


def test_ranks_and_sizes_of_zero():
    assert ts.from_buffer(DATA, (), offset=4).item() == 1
    assert ts.from_buffer(DATA, ()).shape == ()
    assert ts.from_buffer(DATA, (1,) * 16).ndim == 16
    assert ts.from_buffer(DATA, (0, 7)).shape == (0, 7)
    assert ts.from_buffer(b"", (0, 7)).shape == (0, 7)
    assert ts.from_buffer(memoryview(DATA)[1:1], (0,)).shape == (0,)
    assert ts.from_buffer(DATA, (0, 1 << 40), strides=(1 << 70, 3)).shape == (0, 1 << 40)
    assert ts.from_buffer(DATA, (1, 2), strides=(1 << 70, 4)).tolist() == [[0, 1]]
    assert ts.from_buffer(DATA, (1 << 20, 1 << 20), strides=(0, 0), offset=4)[5, 6] == 1


def test_readonly():
    memory = bytearray(8)
    assert not ts.from_buffer(memory, 2).readonly
    assert not ts.from_buffer(memory, 2, readonly=False).readonly
    assert ts.from_buffer(memory, 2, readonly=True).readonly
    assert ts.from_buffer(bytes(8), 2, readonly=True).readonly
    with pytest.raises(ts.UserError, match=r"bytes is read-only.*bytearray"):
        ts.from_buffer(bytes(8), 2, readonly=False)
    frozen = ts.from_buffer(memory, 2, readonly=True)
    with pytest.raises(ValueError, match="read-only"):
        frozen[0] = 1


# ---- Lifetimes ----


def refuses(action):
    with pytest.raises(BufferError):
        action()


@pytest.mark.parametrize("keep", [lambda nd: nd, lambda nd: nd[1:].T, lambda nd: nd.numpy(), memoryview])
def test_bytearray_is_not_resized_in_use(keep):
    memory = bytearray(DATA)
    held = keep(ts.from_buffer(memory, (4, 6)))
    for action in (lambda: memory.append(1), lambda: memory.extend(b"x" * 9999), memory.clear, memory.pop):
        refuses(action)
    assert bytes(memory) == DATA
    del held
    memory.append(1)


def test_memoryviews_may_be_released_and_still_hold():
    memory = bytearray(DATA)
    view = memoryview(memory)
    nd = ts.from_buffer(view, -1)
    view.release()
    refuses(lambda: memory.append(1))
    assert nd[23] == 23
    del nd
    memory.append(1)


def test_array_is_not_resized_in_use():
    numbers = array.array("f", [1, 2, 3])
    nd = ts.from_buffer(numbers, 3)
    refuses(lambda: numbers.append(1))
    del nd
    numbers.append(1)


def test_mmap_is_not_closed_in_use(tmp_path):
    path = tmp_path / "numbers.bin"
    path.write_bytes(DATA)
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    nd = ts.from_buffer(mapped, (2, 3), offset=16)
    refuses(mapped.close)
    if hasattr(mapped, "resize") and sys.platform == "linux":
        refuses(lambda: mapped.resize(1 << 20))
    nd[0, 0] = -1
    assert nd.tolist() == [[-1, 5, 6], [7, 8, 9]]
    del nd
    mapped.close()
    assert np.frombuffer(path.read_bytes(), np.float32)[4] == -1
    with pytest.raises(ts.UserError, match="closed"):
        ts.from_buffer(mapped, (2, 3))


def test_read_only_mmap_outlives_its_name(tmp_path):
    path = tmp_path / "numbers.bin"
    path.write_bytes(DATA)
    with path.open("rb") as file:
        nd = ts.from_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), -1)
    gc.collect()
    assert nd.readonly
    assert nd.tolist() == list(range(24))


def test_shared_memory_is_not_closed_in_use():
    memory = shared_memory.SharedMemory(create=True, size=4096)
    try:
        nd = ts.from_buffer(memory.buf, (4, 6))
        nd[...] = np.arange(24).reshape(4, 6)
        other = shared_memory.SharedMemory(memory.name)
        assert ts.from_buffer(other.buf, (4, 6)).tolist() == nd.tolist()
        other.close()
        refuses(memory.close)
        assert nd[3, 5] == 23
        with pytest.raises(ts.DTypeError, match=r"SharedMemory.*\.buf"):
            ts.from_buffer(memory, (4, 6))
        del nd
    finally:
        gc.collect()
        memory.close()
        memory.unlink()


def test_numpy_array_is_not_resized_in_use():
    a = np.zeros(8, np.float32)
    nd = ts.from_buffer(a, 8)
    with pytest.raises(ValueError, match="resize"):
        a.resize(1 << 20)
    assert nd.size == 8


def test_reference_counts_are_balanced():
    memory = bytearray(64)
    before = sys.getrefcount(memory)
    for _ in range(100):
        nd = ts.from_buffer(memory, (2, -1), offset=8)
        for wrong in ((99,), (3, -1), (-1, -1)):
            with pytest.raises(ts.UserError):
                ts.from_buffer(memory, wrong)
        with pytest.raises(ts.UserError):
            ts.from_buffer(memory, 2, offset=1)
    del nd
    gc.collect()
    assert sys.getrefcount(memory) == before
    memory.append(1)


# ---- Refusals ----


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((DATA, (5, 5)), {}, ts.UserError, r"bytes \[0, 100\) of a buffer of 96"),
        ((DATA, 24), {"offset": 4}, ts.UserError, r"\[4, 100\)"),
        ((DATA, 2), {"offset": -4}, ts.UserError, "offset -4 is outside"),
        ((DATA, 2), {"offset": 97}, ts.UserError, "offset 97 is outside"),
        ((DATA, ()), {"offset": 96}, ts.UserError, r"\[96, 100\)"),
        ((DATA, (2, 2)), {"strides": (-8, 4)}, ts.UserError, r"\[-8, 8\)"),
        ((DATA, (3, 2)), {"strides": (1 << 62, 4)}, ts.UserError, "takes the bytes"),
        ((DATA, (3, 2)), {"strides": (-(1 << 62), 4)}, ts.UserError, "takes the bytes"),
        ((DATA, (2, 2)), {"strides": (1 << 80, -(1 << 80))}, ts.UserError, "takes the bytes"),
        ((DATA, (1 << 62, 1 << 62)), {}, ts.UserError, "63 bits"),
        ((DATA, (1 << 62, 1 << 62)), {"strides": (0, 0)}, ts.UserError, "63 bits"),
        ((DATA, (0, 1 << 62, 1 << 62)), {}, ts.UserError, "63 bits"),
        ((DATA, (2, 1 << 62)), {"row_bytes": 1 << 64}, ts.UserError, "takes the bytes|63 bits"),
        ((DATA, (2, 4)), {"strides": (4,)}, ts.UserError, "2 sizes but 1 strides"),
        ((DATA, (2, 4)), {"strides": (16, 4), "row_bytes": 16}, ts.UserError, "one of them"),
        ((DATA, (2, 4)), {"row_bytes": 12}, ts.UserError, "4 elements takes 16 bytes"),
        ((DATA, (2, 4)), {"row_bytes": -16}, ts.UserError, "row_bytes"),
        ((DATA, ()), {"row_bytes": 16}, ts.UserError, "one dim"),
        ((DATA, (7, 4)), {"row_bytes": 16}, ts.UserError, r"\[0, 112\)"),
        ((DATA, (4, -1, 4)), {"row_bytes": 16}, ts.UserError, "6 rows"),
        ((DATA, (-1, 5)), {}, ts.UserError, "96 bytes.*multiple of the 20"),
        ((DATA, (-1, -1)), {}, ts.UserError, "only one"),
        ((DATA, (-2, 3)), {}, ts.UserError, "0 or more"),
        ((DATA, (-1, 0)), {}, ts.UserError, "cannot be told"),
        ((DATA, (-1, 0)), {"row_bytes": 16}, ts.UserError, "cannot be told"),
        ((DATA, (-1, 2)), {"strides": (0, 4)}, ts.UserError, "stride of 0"),
        ((DATA, (1,) * 17), {}, ts.UserError, "17 dims.*at most 16"),
        ((bytearray(99), 2), {"offset": 6}, ts.UserError, "offset of 4 would do"),
        ((DATA, (2, 2)), {"strides": (10, 4)}, ts.UserError, "stride of 10 .*pad"),
        ((DATA, (2, 2)), {"row_bytes": 10}, ts.UserError, "stride of 10 .*pad"),
        ((DATA, 2.0), {}, ts.DTypeError, "shape"),
        ((DATA, "12"), {}, ts.DTypeError, "shape.*str"),
        ((DATA, (2, "batch")), {}, ts.DTypeError, "each of shape.*str"),
        ((DATA, None), {}, ts.DTypeError, "shape"),
        ((DATA, 2), {"offset": 1.0}, ts.DTypeError, "offset.*float"),
        ((DATA, 2), {"strides": 4}, ts.DTypeError, "strides.*int"),
        ((DATA, (2, 2)), {"row_bytes": "8"}, ts.DTypeError, "row_bytes.*str"),
        ((DATA, 2, "float31"), {}, ts.DTypeError, "float31"),
        (([1, 2], 2), {}, ts.DTypeError, "list has no buffer protocol.*NDArray"),
        (("text", 2), {}, ts.DTypeError, "str has no buffer"),
        ((None, 2), {}, ts.DTypeError, "NoneType"),
        ((np.array([None, 1]), 2), {}, ts.DTypeError, "Python objects"),
        ((np.array([(1, None)], [("x", "i4"), ("y", "O")]), 2), {}, ts.DTypeError, "Python objects"),
        ((np.zeros((2, 3)).T, 2), {}, ts.UserError, "contiguous"),
        ((memoryview(DATA)[::2], 2), {}, ts.UserError, "contiguous.*whole buffer"),
        ((np.zeros(3, ml_dtypes.bfloat16), 3), {}, ts.UserError, "view"),
        ((np.zeros(3, "M8[s]"), 3), {}, ts.UserError, "view"),
    ],
)
def test_refusals(arguments, options, error, message):
    with pytest.raises(error, match=message) as info:
        ts.from_buffer(*arguments, **options)
    assert type(info.value) is error
    if "float31" not in message:
        assert str(info.value).startswith("from_buffer: ")


def test_released_memoryview():
    view = memoryview(bytearray(8))
    view.release()
    with pytest.raises(ts.UserError, match="released"):
        ts.from_buffer(view, 2)


def test_how_misaligned_bytes_are_read_all_the_same():
    memory = b"\0" * 3 + DATA
    with pytest.raises(ts.UserError, match=r"numpy\.ndarray"):
        ts.from_buffer(memory, (4, 6), offset=3)
    nd = ts.NDArray(np.ndarray((4, 6), np.float32, memory, 3))
    assert bits(nd) == DATA


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes have __buffer__ since Python 3.12")
def test_hostile_buffers():
    class Hostile:
        def __init__(self, answer):
            self.answer = answer

        def __buffer__(self, flags):
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

    assert ts.from_buffer(Hostile(memoryview(DATA)), -1).size == 24
    for answer in (5, None, b"abc", ValueError("no"), BufferError("no"), TypeError("no")):
        with pytest.raises(ts.UserError):
            ts.from_buffer(Hostile(answer), 1)
    with pytest.raises(KeyboardInterrupt):
        ts.from_buffer(Hostile(KeyboardInterrupt()), 1)
