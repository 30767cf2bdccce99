# Other libraries with an LLVM or a thread pool of their own, in one process with topstitch.
# Each pair is imported in both orders in a fresh process, and both sides compute something.
from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

TOPSTITCH = """
import numpy as np
import topstitch as ts
def use_topstitch():
    g = ts.Graph()
    x = g.placeholder((-1, 4), name="x")
    y = ts.softmax(ts.tanh(x), axis=-1)
    (out,) = g.run({x: np.arange(8, dtype=np.float32).reshape(2, 4)}, targets=[y])
    e = np.exp(np.tanh(np.arange(8, dtype=np.float64).reshape(2, 4)))
    np.testing.assert_allclose(np.asarray(out), e / e.sum(-1, keepdims=True), rtol=1e-5)
"""
PEERS = {
    "torch": """
import torch
def use_peer():
    x = torch.ones(1000, 100, requires_grad=True)
    torch.tanh(x @ x.T).sum().backward()
    assert x.grad.shape == (1000, 100)
""",
    "numba": """
import numba, numpy
@numba.njit
def total(values):
    result = 0.0
    for value in values:
        result += value * value
    return result
def use_peer():
    assert total(numpy.arange(5.0)) == 30.0
""",
    "jax": """
import jax
def use_peer():
    assert float(jax.jit(lambda x: (x * x).sum())(jax.numpy.arange(5.0))) == 30.0
""",
}


@pytest.mark.parametrize("first", ["topstitch", "peer"])
@pytest.mark.parametrize("name", PEERS)
def test_beside(name: str, first: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    parts = [TOPSTITCH, PEERS[name]] if first == "topstitch" else [PEERS[name], TOPSTITCH]
    program = "\n".join([*parts, "use_topstitch(); use_peer(); use_topstitch(); use_peer(); print('both work')"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.strip().endswith("both work")
