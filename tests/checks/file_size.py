# Prints the largest source files and the lines of each folder, and fails on a file of over 800 lines.
# Files above 400 lines are marked: they should be thought about.
from __future__ import annotations

import sys
from collections import Counter

from sources import relative, source_files

AIM = 400
LIMIT = 800
SHOWN = 20


def main() -> int:
    sizes = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    folders: Counter[str] = Counter()
    for name, lines in sizes.items():
        folders["/".join(name.split("/")[:-1][:2]) or "."] += lines
    print(f"{'lines':>7}  folder")
    for folder, lines in folders.most_common():
        print(f"{lines:7}  {folder}")
    print(f"{sum(sizes.values()):7}  in {len(sizes)} files\n\n{'lines':>7}  largest files")
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    above_aim = sum(lines > AIM for lines in sizes.values())
    for name, lines in largest[: max(SHOWN, above_aim)]:
        note = f"  above {LIMIT}: split it" if lines > LIMIT else f"  above {AIM}" if lines > AIM else ""
        print(f"{lines:7}  {name}{note}")
    return 1 if any(lines > LIMIT for lines in sizes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
