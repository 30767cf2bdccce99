# Checks that includes point one way: no folder of cpp/ uses one above it, and LLVM stays in cpp/cpu.
# A public header topstitch/x.h belongs to the folder that holds its x.cpp, or to what HEADERS says.
from __future__ import annotations

import re
import sys
from pathlib import Path

from sources import ROOT, relative, source_files

# Folders on one line may not use each other; a folder may use everything on the lines before its own.
LAYERS = (
    ("core",),
    ("io", "loopir"),
    ("graph",),
    ("ops",),
    ("autodiff", "passes", "opgen"),
    ("stitch",),
    ("codegen",),
    ("runtime",),
    ("cpu", "metal", "cuda"),
    ("bindings",),
)
RANK = {folder: rank for rank, row in enumerate(LAYERS) for folder in row}
HEADERS = {"autodiff.h": "autodiff", "ops.h": "ops"}  # without a source of the same name; ops.h is generated
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
PUBLIC = ROOT / "cpp" / "include" / "topstitch"


def includes(path: Path) -> list[tuple[str, str]]:
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def layer_of_header(name: str, seen: tuple[str, ...] = ()) -> str:
    """The folder of public header `name`: its .cpp tells, or HEADERS, or the highest that it includes."""
    if name in HEADERS:
        return HEADERS[name]
    stem = Path(name).stem
    homes = [folder for folder in RANK if (ROOT / "cpp" / folder / f"{stem}.cpp").exists()]
    if homes:
        return homes[0]
    below = ["core"]
    if (PUBLIC / name).exists():
        used = [Path(target).name for _, target in includes(PUBLIC / name) if target.startswith("topstitch/")]
        below += [layer_of_header(other, (*seen, name)) for other in used if other not in seen]
    return max(below, key=RANK.__getitem__)


def layer_of_file(path: Path) -> str | None:
    parts = path.relative_to(ROOT).parts
    if parts[:3] == ("cpp", "include", "topstitch"):
        return layer_of_header(path.name)
    if parts[0] == "cpp" and parts[1] in RANK:
        return parts[1]
    if parts[0] in ("metal", "cuda"):
        return parts[0]
    if parts[:2] == ("python", "bindings"):
        return "bindings"
    return None


def check(path: Path) -> list[str]:
    """The includes of `path` that break the order."""
    layer = layer_of_file(path)
    if layer is None:
        return []
    failures = []
    for mark, target in includes(path):
        top = target.split("/")[0]
        if mark == "<" or "/" not in target:
            if top in ("llvm", "llvm-c") and layer != "cpu":
                failures.append(f"{relative(path)} includes <{target}>: only cpp/cpu may use LLVM")
            continue
        other = layer_of_header(target.split("/", 1)[1]) if top == "topstitch" else top
        if other not in RANK:
            failures.append(f'{relative(path)} includes "{target}", which is in no known folder')
        elif other != layer and RANK[other] >= RANK[layer]:
            failures.append(f'{relative(path)} ({layer}) includes "{target}" ({other}), which is not below it')
        elif path.is_relative_to(PUBLIC) and top != "topstitch":
            failures.append(f'{relative(path)} is installed but includes "{target}", which is not')
    return failures


def main() -> int:
    files = [path for path in source_files() if path.suffix in {".cpp", ".h", ".mm", ".cu"}]
    failures = [failure for path in files for failure in check(path)]
    print("\n".join(failures) if failures else f"layers: {len(files)} files include only what lies below them")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
