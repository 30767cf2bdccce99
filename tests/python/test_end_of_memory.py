"""Feeds that end where the memory of the process does: what reads past an end is killed there.

Each case runs in a process of its own, so that the others go on.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, mmap
import numpy as np, topstitch as ts

def at_the_end(shape):
    size = int(np.prod(shape)) * 4
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    array = np.frombuffer(memory, np.float32, size // 4, pages - size).reshape(shape)
    array[...] = np.random.default_rng(size).standard_normal(shape)
    last = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + pages
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(last), mmap.PAGESIZE, 0) == 0
    return array

def run(shapes, describe):
    graph = ts.Graph()
    feeds = {graph.placeholder(shape): at_the_end(shape) for shape in shapes}
    for threads in (1, 2):
        result = np.asarray(graph.run(feeds, describe(*feeds), threads=threads))
        assert np.isfinite(result).all()
"""

CASES = {
    "weights, columns of channels": """run([(2, 40, 4, 130), (2, 17, 2, 128), (3, 3, 40, 17)], lambda x, g, w:
        ts.conv2d_weights_gradient(g, x, w, weights_layout="HWIO"))""",
    "weights, filtered": """run([(3, 33, 23, 21), (3, 41, 23, 21), (41, 33, 3, 3)], lambda x, g, w:
        ts.conv2d_weights_gradient(g, x, w, padding=1))""",
    "weights, filtered in steps": """run([(2, 32, 48, 47), (2, 97, 22, 22), (97, 32, 5, 5)], lambda x, g, w:
        ts.conv2d_weights_gradient(g, x, w, stride=2))""",
    "weights of one channel": """run([(16, 1, 27, 27), (16, 33, 27, 27), (33, 1, 5, 5)], lambda x, g, w:
        ts.conv2d_weights_gradient(g, x, w, padding=2))""",
    "filtered, in parts": """run([(2, 256, 15, 13), (65, 256, 3, 3)], lambda x, w: ts.conv2d(x, w, padding=1))""",
    "data, filtered in steps": """run([(2, 65, 25, 24), (65, 48, 5, 5), (2, 48, 50, 48)], lambda g, w, x:
        ts.conv2d_data_gradient(g, w, x, stride=2, padding=2))""",
    "depthwise, channels last": """run([(2, 9, 11, 35), (3, 3, 1, 35)], lambda x, w:
        ts.conv2d(x, w, padding=1, groups=35, data_layout="NHWC", weights_layout="HWIO"))""",
    "columns in place": """run([(61, 700), (700, 1056)], lambda a, b: a @ b)""",
    "columns by panels": """run([(61, 701), (701, 333)], lambda a, b: a @ b)""",
    "columns across memory": """run([(61, 701), (333, 701)], lambda a, b: a @ ts.transpose(b))""",
    "tiles": """run([(321, 353), (353, 337)], lambda a, b: a @ b)""",
    "tiles, transposed": """run([(353, 321), (337, 353)], lambda a, b: ts.transpose(a) @ ts.transpose(b))""",
    "tiles of batches": """run([(3, 129, 2049), (2049, 131)], lambda a, b: a @ b)""",
}


@pytest.mark.skipif(sys.platform == "win32", reason="pages are protected with mprotect")
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_read_past_the_end(case: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM + CASES[case]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
