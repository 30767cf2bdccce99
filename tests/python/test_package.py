# What an installed package carries: versions, types, licences, the C++ library and its CMake package.
# A C++ program outside the tree is built against it and run.
from __future__ import annotations

import importlib.metadata
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import topstitch
from topstitch import _core

CONSUMER = Path(__file__).parents[1] / "package" / "consumer"
INSTALLED = Path(_core.__file__).parent
LIBRARY = INSTALLED / "lib" / ("libtopstitch.dylib" if sys.platform == "darwin" else "libtopstitch.so")


def run(*command: str | Path) -> str:
    """The standard output of `command`, which must succeed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def test_versions_agree() -> None:
    version = importlib.metadata.version("topstitch")
    assert topstitch.__version__ == version
    assert run(sys.executable, "-m", "topstitch", "--version").strip() == version
    assert f'"{version}"' in (INSTALLED / "include" / "topstitch" / "version.h").read_text()


def test_licences_are_in_the_package() -> None:
    licences = INSTALLED / "share" / "licenses"
    assert "Apache License" in (licences / "LICENSE").read_text()
    notices = (licences / "THIRD_PARTY_NOTICES.md").read_text()
    for part, phrase in {
        "LLVM": "LLVM Exceptions to the Apache 2.0 License",
        "zlib": "Jean-loup Gailly and Mark Adler",
        "zstd": "Meta Platforms",
    }.items():
        assert f"`{part}.txt`" in notices
        assert phrase in (licences / "third_party" / f"{part}.txt").read_text(), part
    assert "Wenzel Jakob" in notices


def test_numpy_is_imported_only_when_it_is_needed(tmp_path: Path) -> None:
    """A process that runs a model from a file starts in a fraction of the time that NumPy takes."""
    path = tmp_path / "arrays.safetensors"
    topstitch.save_arrays(path, {"w": np.full((2, 2), 0.5, np.float32), "x": np.ones((1, 2), np.float32)})
    program = f"""
import sys
import topstitch as ts
arrays = ts.load_arrays({str(path)!r})
graph = ts.Graph()
x = graph.placeholder((-1, 2), dtype="float32")
y = ts.maximum(x @ arrays["w"] * 3.0 + 1, 2) - True
(result,) = graph.run({{x: arrays["x"]}}, [y])
(total,) = graph.run({{x: arrays["x"]}}, [ts.sum(y)])
print(result.shape, float(total), total.item(), bool(total), "numpy" in sys.modules)
print(float(result[0, 1]), result.tolist())
"""
    lines = run(sys.executable, "-c", program).splitlines()
    assert lines == ["(1, 2) 6.0 6.0 True False", "3.0 [[3.0, 3.0]]"]


def test_package_is_typed() -> None:
    assert (Path(topstitch.__file__).parent / "py.typed").exists()


def test_package_is_at_most_30_megabytes() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in sorted(INSTALLED.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                wheel.write(path, path.relative_to(INSTALLED))
    assert packed.tell() <= 30_000_000


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_library_exports_nothing_but_topstitch() -> None:
    flags = ["-gU"] if sys.platform == "darwin" else ["-D", "--defined-only"]
    names = [line.split()[-1] for line in run("nm", *flags, LIBRARY).splitlines() if line]
    assert len(names) > 50
    ours = re.compile(r"_+Z(N|NK|TIN|TSN|TVN)9topstitch")
    assert [name for name in names if not ours.match(name)] == []
    assert [name for name in names if "4llvm" in name] == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")
@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_libraries_need_only_the_system() -> None:
    system = {f"lib{name}" for name in ("stdc++.so.6", "m.so.6", "gcc_s.so.1", "c.so.6", "pthread.so.0", "dl.so.2")}
    for path in (LIBRARY, Path(_core.__file__)):
        needed = {
            line.split("[")[1].rstrip("]") for line in run("readelf", "-d", path).splitlines() if "(NEEDED)" in line
        }
        needed = {name for name in needed if not name.startswith("ld-linux")}
        assert needed <= system | {"librt.so.1", "libtopstitch.so"}, path


def test_cmake_dir_is_printed() -> None:
    printed = Path(run(sys.executable, "-m", "topstitch", "--cmake-dir").strip())
    assert (printed / "topstitchConfig.cmake").is_file()


def test_unknown_command_line_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "topstitch", "--no-such-option"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


def compiler_is_there() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++"))


@pytest.fixture(scope="module")
def consumer_output(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the program of tests/package/consumer prints: the rest of each line by its first word."""
    if shutil.which("cmake") is None or not compiler_is_there():
        pytest.skip("needs cmake and a C++ compiler")
    folder = tmp_path_factory.mktemp("consumer")
    package = run(sys.executable, "-m", "topstitch", "--cmake-dir").strip()
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configured = run("cmake", "-S", CONSUMER, "-B", folder, *generator, f"-Dtopstitch_DIR={package}")
    assert f"topstitch version: {topstitch.__version__}" in configured
    run("cmake", "--build", folder)
    lines = run(folder / "consumer").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_cpp_program_uses_arrays(consumer_output: dict[str, str]) -> None:
    assert consumer_output["transpose"] == "1 4 2 5 3 6"
    assert consumer_output["reversed"] == "3 2 1 6 5 4"
    assert consumer_output["shape"] == "(batch, 3)"


def test_cpp_program_differentiates_and_trains(consumer_output: dict[str, str]) -> None:
    x = np.array([[0.5, -1, 2], [0.25, 1, -0.5]])
    w = np.array([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6]])

    def numbers(word: str) -> list[float]:
        return [float(number) for number in consumer_output[word].split()]

    for i in range(3):
        y = np.tanh(x @ w)
        slope = x.T @ (2 * (y - 1) * (1 - y * y))
        if i == 0:
            np.testing.assert_allclose(numbers("slope"), slope.ravel(), rtol=1e-12)
        np.testing.assert_allclose(numbers(f"loss{i}"), [((y - 1) ** 2).sum()], rtol=1e-12)
        w = w - 0.1 * slope
    np.testing.assert_allclose(numbers("trained"), w.ravel(), rtol=1e-12)


def test_cpp_program_compiles_ahead(consumer_output: dict[str, str]) -> None:
    values = np.array([0, 1, -1, 2, 3, -4])
    for rows in (1, 3):
        got = [float(number) for number in consumer_output[f"rows{rows}"].split()]
        np.testing.assert_allclose(got, 2 * np.exp(values[: 2 * rows]), rtol=1e-6)
    assert consumer_output["kernels"] == "1"


def test_cpp_program_prints_types(consumer_output: dict[str, str]) -> None:
    assert consumer_output["typed"].startswith("float64(")


def test_cpp_program_catches_errors(consumer_output: dict[str, str]) -> None:
    assert "-1" in consumer_output["error"]
