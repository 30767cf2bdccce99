"""Damaged and hostile files end in an error with its reason: never in a crash, a hang or a large allocation.

The rules of the format are broken one by one, and then at random; every seed is in the test.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import re
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topstitch as ts

LOADERS: list[Callable[[Path], Any]] = [ts.Graph.load, ts.Executable.load, ts.load_arrays]


def pack(header: str | bytes | dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def entry(begin: Any = 0, end: Any = 4, shape: Any = (1,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": [begin, end]}


def text_of(item: dict[str, Any]) -> str:
    return json.dumps(item)


A = text_of(entry())
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "one byte": (b"\0", "fewer than any such file"),
    "huge header": (b"\xff" * 8 + b"{}", "header would have 18446744073709551615 bytes"),
    "header of the limit": (pack("{}", length=100_000_001), "more than the 100000000"),
    "cut header": (pack("{}", length=1000), "is cut off: its header has 1000 bytes, and the whole file 10"),
    "no header": (pack("[]"), "does not begin with '{'"),
    "not closed": (pack("{ "), 'expected a key in double quotes, but found the end'),
    "trailing": (pack("{} x"), "expected the end of the header, but found 'x'"),
    "trailing comma": (pack('{"a":' + A + ",}", b"\0" * 4), "expected a key"),
    "no colon": (pack('{"a" ' + A + "}"), "expected ':'"),
    "duplicate": (pack('{"a":' + A + ',"\\u0061":' + A + "}", b"\0" * 4), 'the key "a" is there twice'),
    "duplicate metadata": (pack('{"__metadata__":{"a":"","a":""}}'), "there twice"),
    "two metadata": (pack('{"__metadata__":{},"__metadata__":{}}'), "there twice"),
    "duplicate field": (pack('{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}'), "there twice"),
    "metadata is a list": (pack('{"__metadata__":[]}'), "to open the metadata"),
    "metadata is no string": (pack('{"__metadata__":{"a":1}}'), "expected a string of the metadata"),
    "nested metadata": (pack('{"__metadata__":{"a":{"b":""}}}'), "expected a string of the metadata"),
    "deep lists": (pack('{"a":' + "[" * 1_000_000), "to open what describes an array"),
    "deep objects": (pack('{"a":' * 1_000_000), 'the key "a" is not one of'),
    "entry is null": (pack('{"a":null}'), "to open what describes an array"),
    "no dtype": (pack({"a": {"shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4), "dtype is missing"),
    "no shape": (pack({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, b"\0" * 4), "shape is missing"),
    "no offsets": (pack({"a": {"dtype": "F32", "shape": [1]}}, b"\0" * 4), "data_offsets is missing"),
    "other field": (pack({"a": {**entry(), "x": 1}}, b"\0" * 4), 'the key "x" is not one of dtype, shape'),
    "unknown dtype": (pack({"a": entry(dtype="F8_E4M3")}, b"\0" * 4), 'dtype "F8_E4M3" is not known; .* BOOL, I8, I16'),
    "empty dtype": (pack({"a": entry(dtype="")}), 'dtype "" is not known'),
    "dtype is a number": (pack({"a": entry(dtype=3)}), "expected a dtype"),
    "negative dim": (pack({"a": entry(shape=(-1,))}), "expected a dim, a whole number from 0, but found '-'"),
    "fraction": (pack({"a": entry(shape=(1.5,))}), "without a fraction"),
    "exponent": (pack('{"a":{"dtype":"F32","shape":[1e9],"data_offsets":[0,4]}}'), "without a fraction"),
    "leading zero": (pack('{"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}'), "begins with a zero"),
    "dim of 64 bits": (pack({"a": entry(shape=(2**63,))}), "a dim does not fit in 63 bits"),
    "dim of many digits": (pack('{"a":{"dtype":"F32","shape":[' + "9" * 100_000 + "]"), "does not fit in 63 bits"),
    "17 dims": (pack({"a": entry(shape=(1,) * 17)}), "more than 16 dims"),
    "overflowing shape": (pack({"a": entry(shape=(2**32, 2**31))}, b"\0" * 4), "does not fit in 63 bits"),
    "overflow to 0": (pack({"a": entry(0, 0, (2**32, 2**32))}), "does not fit in 63 bits"),
    "overflow behind a 0": (pack({"a": entry(0, 0, (0, 2**62, 2**62))}), "does not fit in 63 bits"),
    "large shape": (pack({"a": entry(shape=(2**60,))}, b"\0" * 4), "takes 4611686018427387904 bytes"),
    "large offsets": (pack({"a": entry(0, 2**40, (2**38,))}, b"\0" * 4), "ends at byte 1099511627776 of the data"),
    "negative offset": (pack({"a": entry(-4, 0)}), "expected an offset"),
    "reversed offsets": (pack({"a": entry(4, 0)}, b"\0" * 4), "lies at bytes 4 to 0"),
    "offset of 64 bits": (pack({"a": entry(0, 2**64)}), "an offset does not fit"),
    "three offsets": (pack('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}'), "after the offsets"),
    "wrong size": (pack({"a": entry(0, 4, (2,))}, b"\0" * 4), r"but float32\(2,?\) takes 8 bytes"),
    "hole at the start": (pack({"a": entry(4, 8)}, b"\0" * 8), "no gap and no overlap"),
    "hole between": (pack({"a": entry(0, 4), "b": entry(8, 12)}, b"\0" * 12), "no gap and no overlap"),
    "overlap": (pack({"a": entry(0, 8, (2,)), "b": entry(4, 8)}, b"\0" * 8), "no gap and no overlap"),
    "same place": (pack({"a": entry(), "b": entry()}, b"\0" * 4), "no gap and no overlap"),
    "data left over": (pack({"a": entry()}, b"\0" * 5), "end at byte 4 of the data, but there are 5"),
    "data cut off": (pack({"a": entry()}, b"\0" * 3), "there are 3; the file was cut off"),
    "not UTF-8": (pack(b'{"a\xff":' + A.encode() + b"}", b"\0" * 4), "not UTF-8"),
    "overlong UTF-8": (pack(b'{"\xc0\x80":' + A.encode() + b"}", b"\0" * 4), "not UTF-8"),
    "surrogate in UTF-8": (pack(b'{"\xed\xa0\x80":' + A.encode() + b"}", b"\0" * 4), "not UTF-8"),
    "lone surrogate": (pack('{"\\ud800":' + A + "}", b"\0" * 4), "half of a character stands alone"),
    "low surrogate": (pack('{"\\udc00":' + A + "}", b"\0" * 4), "half of a character stands alone"),
    "two high surrogates": (pack('{"\\ud800\\ud800":' + A + "}", b"\0" * 4), "not followed by the second"),
    "short escape": (pack('{"\\u12'), "four hexadecimal digits"),
    "unknown escape": (pack('{"\\x41":' + A + "}", b"\0" * 4), "after '.' a string may have"),
    "control character": (pack('{"a\n":' + A + "}", b"\0" * 4), "must be escaped"),
    "open string": (pack('{"abc'), "no closing"),
    "bools of other bytes": (pack({"a": entry(0, 2, (2,), "BOOL")}, b"\x01\x02"), "bytes other than 0 and 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_every_rule_of_the_format(tmp_path: Path, name: str) -> None:
    contents, message = BROKEN[name]
    path = tmp_path / "a"
    path.write_bytes(contents)
    with pytest.raises(ts.UserError, match=message) as info:
        ts.load_arrays(path)
    assert str(path) in str(info.value)
    assert len(str(info.value)) < 1000


def test_what_the_format_allows(tmp_path: Path) -> None:
    path = tmp_path / "a"
    header = '{\t"b\\ud83d\\ude00\\/":\r\n' + text_of(entry(4, 8)) + ' , "a":' + A
    header += ',"c":' + text_of(entry(4, 4, (0, 9))) + "}   \n"
    path.write_bytes(pack(header, np.float32([1, 2]).tobytes()))
    loaded = ts.load_arrays(path)
    assert {name: np.asarray(array).tolist() for name, array in loaded.items()} == {
        "a": [1], "b\U0001f600/": [2], "c": [],
    }  # fmt: skip


def archives() -> dict[str, bytes]:
    zipped, saved = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a", b"x" * 100)
    np.save(saved, np.zeros(3))
    return {
        "gzip": gzip.compress(b"x" * 100),
        "zip": zipped.getvalue(),
        "xz": lzma.compress(b"x" * 100),
        "bzip2": bz2.compress(b"x" * 100),
        "pickle": pickle.dumps({"w": [1.0] * 100}),
        "npy": saved.getvalue(),
        "text of a graph": ts.Graph().text().encode(),
        "JSON": b'{"a": 1, "b": [2, 3]}',
    }


@pytest.mark.parametrize("name", archives())
def test_other_files_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_bytes(archives()[name])
    for load in LOADERS:
        with pytest.raises(ts.UserError, match=f"not a safetensors file: .*; it looks like .*{name}"):
            load(tmp_path / "a")


# --- What is in the metadata


def saved_header(path: Path) -> tuple[dict[str, Any], bytes]:
    contents = path.read_bytes()
    end = 8 + int.from_bytes(contents[:8], "little")
    return json.loads(contents[8:end]), contents[end:]


def example(path: Path, executable: bool) -> None:
    g = ts.Graph()
    x = g.placeholder(("n", 6), name="x")
    w = g.variable(np.arange(30, dtype=np.float32).reshape(6, 5) / 10, name="w")
    c = g.constant(np.arange(20, dtype=np.int16), name="c")
    y = ts.softmax(x @ w, axis=-1)
    parts = ts.split(y, num_splits=5, axis=1)
    total = ts.sum(c)
    with g.control_dependencies([w.assign(w * 2, name="double")]):
        after = w.read()
    if executable:
        exe = g.compile([x], {"a": parts[1], "b": total, "c": after}, g.operations[-2])
        exe.run(np.ones((3, 6), np.float32))
        exe.save(path)
    else:
        g.save(path)


def changed(path: Path, key: str, value: Callable[[str], str | None]) -> None:
    header, data = saved_header(path)
    new = value(header["__metadata__"][key])
    if new is None:
        del header["__metadata__"][key]
    else:
        header["__metadata__"][key] = new
    path.write_bytes(pack(header, data))


CHANGES: list[tuple[str, Callable[[str], str | None], str]] = [
    ("topstitch.format", lambda _: "2", r"written by a newer topstitch \(.*\), format 2; this one, .*, reads up to 1"),
    ("topstitch.format", lambda _: "9" * 100, "written by a newer topstitch"),
    ("topstitch.format", lambda _: "0", 'its format is "0"'),
    ("topstitch.format", lambda _: "one", 'its format is "one"'),
    ("topstitch.format", lambda _: None, "holds arrays only"),
    ("topstitch.kind", lambda _: "circus", 'unknown kind "circus"'),
    ("topstitch.kind", lambda _: None, 'metadata has no "topstitch.kind"'),
    ("topstitch.graph", lambda _: None, 'metadata has no "topstitch.graph"'),
    ("topstitch.graph", lambda _: "", "a graph begins with the line"),
    ("topstitch.graph", lambda t: t.replace("topstitch graph 1", "topstitch graph 7"), "format 7 is not known"),
    ("topstitch.graph", lambda t: t.replace('external"w"', 'external"v"'), r'line 3, .* the file has no array "v"'),
    ("topstitch.graph", lambda t: t.replace('external"c"', 'external"w"'), 'array "w" is used twice'),
    ("topstitch.graph", lambda t: t.replace("float32(6, 5)external", "float32(5, 6)external"),
     r'the text says float32\(5, 6\), but the array that is kept as "w" is float32\(6, 5\)'),
    ("topstitch.graph", lambda t: t.replace("float32(6, 5)external", "int32(6, 5)external"), "the text says int32"),
    ("topstitch.graph", lambda t: re.sub(r"value=int16.*", 'value=int16(1,)[1]) "c"', t), 'does not use the array "c"'),
    ("topstitch.graph", lambda t: t.replace("softmax", "softmux"), "no operation 'softmux'; did you mean"),
    ("topstitch.graph", lambda t: t.replace('external"w"', "external"), "line 3"),
    ("topstitch.graph", lambda t: t + "%99 = fill(value=1.0, shape=(1000000000000,))\n", "line"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CHANGES)))
@pytest.mark.parametrize("executable", [False, True], ids=["graph", "executable"])
def test_metadata_is_checked(tmp_path: Path, executable: bool, index: int) -> None:
    key, value, message = CHANGES[index]
    path = tmp_path / "a"
    example(path, executable)
    changed(path, key, value)
    with pytest.raises(ts.UserError, match=message):
        (ts.Executable.load if executable else ts.Graph.load)(path)


SIGNATURE: list[tuple[str, Callable[[str], str | None], str]] = [
    *((f"topstitch.{key}", lambda _: None, f'metadata has no "topstitch.{key}"')
      for key in ("feeds", "targets", "operations", "options", "shapes")),
    ("topstitch.feeds", lambda _: "%1.0 : float32(6, 5)", "only placeholders can be fed"),
    ("topstitch.feeds", lambda t: t * 2, "a placeholder is fed twice"),
    ("topstitch.feeds", lambda t: t.replace("float32", "int32"), "cannot be compiled for int32"),
    ("topstitch.feeds", lambda t: t.replace("6)", "7)"), "cannot be compiled for"),
    ("topstitch.feeds", lambda _: "%0.0 : float32(?...)", "a feed has no rank"),
    ("topstitch.feeds", lambda _: "", "there are 1 shapes for 0 feeds"),
    ("topstitch.feeds", lambda _: "%0.1 : float32(n, 6)", "result 1 is asked for, but the operation has 1"),
    ("topstitch.feeds", lambda _: "%77.0 : float32(n, 6)", "the graph has no operation %77"),
    ("topstitch.feeds", lambda _: "nonsense", "expected '%'"),
    ("topstitch.targets", lambda _: "%0.-1", "result -1 is asked for"),
    ("topstitch.targets", lambda _: "%0.0 %0.0", "expected the end of the line"),
    ("topstitch.targets", lambda _: "%0.0", '"python.targets" does not describe 1 targets'),
    ("topstitch.operations", lambda _: "%9223372036854775808", "does not fit in 64 bits"),
    ("topstitch.options", lambda _: "threads=-1", 'the option threads cannot be "-1"'),
    ("topstitch.options", lambda _: "stitch=maybe", 'the option stitch cannot be "maybe"'),
    ("topstitch.options", lambda _: "stitch=true\nstitch=true", "there twice"),
    ("topstitch.options", lambda _: "speed=11", 'the option "speed" is not known'),
    ("topstitch.shapes", lambda _: "[(3, 6), (1,)]", "there are 2 shapes for 1 feeds"),
    ("topstitch.shapes", lambda _: "[(3, 7)]", "axis 1 must be 6"),
    ("topstitch.shapes", lambda _: "[(n, 6)]", "must be known"),
    ("topstitch.shapes", lambda _: "[(3, 6)", r"expected ','"),
    ("python.targets", lambda _: '"tensor"', "does not describe 3 targets"),
    ("python.targets", lambda _: '["a", "a", "b"]', "does not describe 3 targets"),
    ("python.targets", lambda _: '["a", 1, "b"]', "does not describe 3 targets"),
    ("python.targets", lambda _: "[" * 100_000, "does not describe 3 targets"),
    ("python.targets", lambda _: "import os", "does not describe 3 targets"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(SIGNATURE)))
def test_signatures_are_checked(tmp_path: Path, index: int) -> None:
    key, value, message = SIGNATURE[index]
    path = tmp_path / "a"
    example(path, True)
    changed(path, key, value)
    with pytest.raises(ts.UserError, match=message):
        ts.Executable.load(path)


def test_a_large_fill_takes_no_memory(tmp_path: Path) -> None:
    g = ts.Graph()
    ts.broadcast_to(g.constant(1.0), (10**6, 10**6))
    g.save(tmp_path / "a")
    assert (tmp_path / "a").stat().st_size < 2000
    assert ts.Graph.load(tmp_path / "a").operations[-1].outputs[0].shape == (10**6, 10**6)


# --- At random


def load_all(path: Path, contents: bytes, kind: int) -> bool:
    """Whether the file still loads. Anything but a TopstitchError fails the test."""
    path.write_bytes(contents)
    try:
        loaded = LOADERS[kind](path)
    except ts.UserError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert str(path) in message
        assert len(message) < 2000
        return False
    if kind == 0:
        loaded.verify()
        loaded.save(path)
        assert ts.Graph.load(path).structural_hash() == loaded.structural_hash()
    return True


@pytest.fixture(params=[0, 1, 2], ids=["graph", "executable", "arrays"])
def good(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bytes, int]:
    kind: int = request.param
    example(tmp_path / "a", kind == 1)
    contents = (tmp_path / "a").read_bytes()
    assert load_all(tmp_path / "a", contents, kind)
    return tmp_path / "a", contents, kind


def test_truncated_at_every_length(good: tuple[Path, bytes, int]) -> None:
    path, contents, kind = good
    loaded = [length for length in range(len(contents)) if load_all(path, contents[:length], kind)]
    assert loaded == []


def mutated(contents: bytes, rng: random.Random) -> bytes:
    data = bytearray(contents)
    end = 8 + int.from_bytes(contents[:8], "little")
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(end if rng.random() < 0.8 else len(data)) if data else 0
        choice = rng.randrange(7)
        if choice == 0 and data:
            at %= len(data)
            data[at] ^= 1 << rng.randrange(8)
        elif choice == 1:
            data[at : at + 1] = bytes([rng.choice(b'{}[]":,\\0123456789-%.ex \n\0\xff')])
        elif choice == 2:
            del data[at : at + rng.randrange(1, 20)]
        elif choice == 3:
            start = rng.randrange(len(contents))
            data[at:at] = contents[start : start + rng.randrange(40)]
        elif choice == 4 and rng.random() < 0.2:
            del data[at:]
        else:  # another number in place of one
            found = list(re.finditer(rb"\d+", bytes(data[8:end])))
            if found:
                place = rng.choice(found)
                numbers = [b"0", b"1", b"-1", b"7", b"16", b"17", b"4294967296", b"9223372036854775807", b"1e9", b"0.5"]
                data[8 + place.start() : 8 + place.end()] = rng.choice(numbers)
    if rng.random() < 0.7:  # so that more than the length of the header is tried
        rest = len(contents) - end
        data[:8] = max(0, len(data) - rest - 8).to_bytes(8, "little")
    return bytes(data)


def test_mutations(good: tuple[Path, bytes, int]) -> None:
    path, contents, kind = good
    rng = random.Random(2026 + kind)
    rounds = (2000, 700, 4000)[kind]
    loaded = sum(load_all(path, mutated(contents, rng), kind) for _ in range(rounds))
    assert 0 < loaded < rounds


def test_memory_stays_small(tmp_path: Path) -> None:
    """A header of some megabytes that describes nothing sound costs a small multiple of its size."""
    path = tmp_path / "a"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = "(" * 8_000_000
    for contents in (
        pack('{"a":' * 2_000_000),
        pack('{"a":' + "[" * 8_000_000),
        pack('{"__metadata__":{"topstitch.format":"1","topstitch.kind":"graph","topstitch.graph":"' + text + '"}}'),
        pack({"a": entry(0, 2**50, (2**48,))}),
    ):  # fmt: skip
        path.write_bytes(contents)
        for load in LOADERS[:2]:
            with pytest.raises(ts.UserError):
                load(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000  # kilobytes
