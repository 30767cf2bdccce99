"""What the scripts share that make a page of docs/: `--check` compares the page instead of writing it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def write_or_check(page: Path, make: Callable[[], str], description: str | None, command: str) -> int:
    """The exit status: 1 when the page is to be checked and differs from what `make` gives."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is stale")
    check = parser.parse_args().check
    text = make()
    if not check:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page.name} is stale: run {command}", file=sys.stderr)
    return 1
