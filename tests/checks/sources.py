# Which files of the repository the style checks look at.
# Build results and data are left out; what git knows is not asked, so that a copy is checked alike.
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", ".github", "bench", "cmake", "cpp", "cuda", "docs", "examples", "metal", "python", "tests")
SUFFIXES = {".c", ".cmake", ".cpp", ".cu", ".cuh", ".h", ".in", ".map", ".metal", ".mm", ".py", ".pyi", ".sh", ".yml"}
ROOT_FILES = ("CMakeLists.txt", "pyproject.toml", ".pre-commit-config.yaml", ".clang-tidy")


def source_files() -> Iterator[Path]:
    """Every source file, sorted by path."""
    for name in sorted(ROOT_FILES):
        if (ROOT / name).exists():
            yield ROOT / name
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and is_source(path):
                yield path


def is_source(path: Path) -> bool:
    return path.suffix in SUFFIXES or path.name == "CMakeLists.txt" or path == ROOT / ".ci" / "run"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
