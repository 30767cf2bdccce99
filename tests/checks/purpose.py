# Checks that every source file says what it is for in its first two lines.
# In Python the two lines may be the start of the module's docstring instead.
from __future__ import annotations

import re
import sys
from pathlib import Path

from sources import relative, source_files

COMMENT = re.compile(r"\s*(//|#|/?\*)\s*\S")


def problem(path: Path) -> str | None:
    """What is wrong with the opening of `path`, or None."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    if not lines:
        return "is empty"
    if path.suffix in {".py", ".pyi"} and lines[0].startswith(('"""', 'r"""')):
        return None if lines[0].strip('r"').strip() else "has a docstring that begins with an empty line"
    if len(lines) < 2 or not all(COMMENT.match(line) for line in lines[:2]):
        return "does not open with two comment lines that say what it is for"
    return None


def main() -> int:
    count = 0
    failures = []
    for path in source_files():
        count += 1
        if what := problem(path):
            failures.append(f"{relative(path)} {what}")
    print("\n".join(failures) if failures else f"purpose: {count} files open with what they are for")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
