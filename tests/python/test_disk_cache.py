"""Kernels on disk: found by the next process, never trusted blindly, bounded, and nobody else's files touched.

Each process that these tests start has a cache folder of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from execution_helpers import finish, run_child, start

CODE = """
import sys, numpy as np, topstitch as ts
graph = ts.Graph()
x = graph.placeholder((-1,))
for k in range(3):
    assert graph.run({x: np.arange(4, dtype=np.float32)}, x * (k + 2.5)).tolist() == [j * (k + 2.5) for j in range(4)]
kernels = ts.cache_statistics()["kernels"]
print(kernels["compiled"], kernels["disk_hits"])
"""


def run(folder: Path | str, **environment: str) -> list[int]:
    """How many kernels a fresh process compiles, and how many it finds on disk."""
    out = run_child(CODE, prelude="", TOPSTITCH_CACHE_DIR=str(folder), **environment)
    return [int(word) for word in out.split()]


def kernels(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache") / "new" / "cache"
    assert run(folder) == [3, 0]
    return folder


def test_the_next_process_compiles_nothing(filled: Path) -> None:
    assert run(filled) == [0, 3]
    assert len(kernels(filled)) == 3
    assert filled.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kernels(filled))
    assert all(path.parent.stat().st_mode & 0o777 == 0o700 for path in kernels(filled))


def test_what_lies_there_depends_on_the_target(tmp_path: Path) -> None:
    other = "x86-64-v3" if os.uname().machine == "x86_64" else "generic"
    assert run(tmp_path / "cache") == [3, 0]
    assert run(tmp_path / "cache", TOPSTITCH_TARGET_CPU=other) == [3, 0]
    assert run(tmp_path / "cache") == [0, 3]


def test_damage_is_ignored_and_mended(filled: Path) -> None:
    first, second, third = (path.read_bytes() for path in kernels(filled)[:3])
    for damage in (
        [first[:-1], b"", b"garbage" * 100],
        [first[:60], second + b"x", bytes(third[:18]) + bytes(len(third) - 18)],
        [second, third, first],  # each sound, under another's name
        [first[: len(first) // 2] + bytes([first[len(first) // 2] ^ 1]) + first[len(first) // 2 + 1 :],
         second[:20] + b"0" + second[21:] if second[20:21] != b"0" else second[:20] + b"1" + second[21:],
         b"topstitch cache 2\n" + third[18:]],
    ):  # fmt: skip
        for path, bytes_ in zip(kernels(filled)[:3], damage, strict=True):
            path.write_bytes(bytes_)
        for path in kernels(filled)[3:]:
            path.unlink()
        assert run(filled) == [3, 0]
        assert {path.read_bytes() for path in kernels(filled)} == {first, second, third}


def test_odd_things_in_place_of_files(filled: Path, tmp_path: Path) -> None:
    assert run(filled)[0] in (0, 3)
    one, two, three = kernels(filled)[:3]
    victim = tmp_path / "victim"
    victim.write_bytes(one.read_bytes())
    before = victim.read_bytes()
    one.unlink()
    one.symlink_to(victim)
    two.unlink()
    os.mkfifo(two)
    three.chmod(0o666)  # anybody could have written it
    assert run(filled) == [3, 0]
    assert victim.read_bytes() == before
    assert not one.is_symlink()
    assert run(filled) == [0, 3]
    one.unlink()
    one.mkdir()
    assert run(filled) == [1, 2]
    one.rmdir()


def test_folders_that_are_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    file = tmp_path / "file"
    file.write_text("a file")
    for folder in (shared, link, file, file / "below", "/proc/nowhere", "/dev/null"):
        assert run(folder) == [3, 0], folder
    assert not kernels(shared)
    assert not kernels(tmp_path / "elsewhere")
    assert file.read_text() == "a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    assert run(tmp_path / "cache") == [3, 0]
    (section,) = (tmp_path / "cache").iterdir()
    kernels(section)[0].unlink()
    section.chmod(0o500)
    assert run(tmp_path / "cache") == [1, 2]
    section.chmod(0o700)


@pytest.mark.parametrize("environment", ["HOME=", "HOME=relative", "XDG_CACHE_HOME={}/xdg", "HOME={}"])
def test_where_the_folder_is(environment: str, tmp_path: Path) -> None:
    name, value = environment.format(tmp_path).split("=")
    code = "import topstitch as ts; print(ts.cache_statistics()['kernel_folder'])"
    env = {
        key: text for key, text in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME", "TOPSTITCH_CACHE_DIR")
    }
    out = subprocess.run(
        [sys.executable, "-c", code], env={**env, name: value}, capture_output=True, text=True, check=True, timeout=60
    )
    expected = {"HOME=": "", "HOME=relative": "", "HOME={}": f"{tmp_path}/.cache/topstitch"}
    if sys.platform == "darwin":
        expected["HOME={}"] = f"{tmp_path}/Library/Caches/topstitch"
    assert out.stdout.strip() == expected.get(environment, f"{tmp_path}/xdg/topstitch")


def test_off_and_empty(tmp_path: Path) -> None:
    assert run("off", HOME=str(tmp_path)) == [3, 0]
    assert not kernels(tmp_path)
    assert run("", HOME=str(tmp_path), XDG_CACHE_HOME="") == [3, 0]
    assert run("", HOME=str(tmp_path), XDG_CACHE_HOME="") == [0, 3]


def test_the_size_is_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert run(folder, TOPSTITCH_CACHE_MEGABYTES="0") == [3, 0]
    assert not kernels(folder)
    assert run(folder, TOPSTITCH_CACHE_MEGABYTES="-1") == [3, 0]
    assert run(folder) == [3, 0]
    section = kernels(folder)[0].parent
    for k in range(24):  # as if other kernels had been there for long
        old = section / f"{k:032x}"
        old.write_bytes(bytes(100_000))
        os.utime(old, (k, k))
    one = kernels(section)[-1]
    one.unlink()
    assert sum(run(folder, TOPSTITCH_CACHE_MEGABYTES="1")) == 3
    sizes = {path.name: path.stat().st_size for path in kernels(folder)}
    assert sum(sizes.values()) <= 1 << 20
    assert f"{0:032x}" not in sizes  # the oldest went
    assert len([name for name in sizes if sizes[name] != 100_000]) == 3


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """The folder may be one that the user has for other things too."""
    tmp_path.chmod(0o700)
    thesis, draft = tmp_path / "documents" / "thesis.tex", tmp_path / "draft.tmp"
    thesis.parent.mkdir()
    thesis.write_bytes(bytes(2 << 20))
    draft.write_text("half written")
    for path in (thesis, draft):
        os.utime(path, (1, 1))
    assert run(tmp_path, TOPSTITCH_CACHE_MEGABYTES="1") == [3, 0]
    assert thesis.exists()
    assert draft.exists()


def test_processes_at_once(tmp_path: Path) -> None:
    environment = {"TOPSTITCH_CACHE_DIR": str(tmp_path / "cache")}
    children = [start(CODE, "", **environment) for _ in range(4)]
    for child in children:
        assert sum(int(word) for word in finish(child).split()) == 3
    assert len(kernels(tmp_path)) == 3
    assert run(tmp_path / "cache") == [0, 3]
