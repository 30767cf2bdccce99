"""The pages of docs/ say what is there: names exist, links lead somewhere, examples run, the reference is current.

Skipped where docs/ does not lie beside the tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import topstitch as ts
from scripts import load_script
from topstitch import _core

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HEADERS = ROOT / "cpp" / "include" / "topstitch"

pytestmark = pytest.mark.skipif(not (DOCS / "mpsgraph.md").exists(), reason="docs/ is not beside the tests")

CLASSES = (
    "Graph|Tensor|Operation|Executable|Report|ShapedType|NDArray|ImageBatch|"
    "Device|Queue|CommandBuffer|Event|Job|Profile"
)
PAGES = ["README.md"] + [
    f"docs/{name}.md" for name in ("mpsgraph", "arrays", "saving", "running", "training", "layers", "control-flow")
]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_spans(text: str) -> list[str]:
    """What stands between backquotes, outside of blocks of code."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def link_targets(text: str) -> dict[str, str]:
    """The reference links of a page, by their label."""
    return dict(re.findall(r"^\[`([^`]+)`\]: (\S+)$", text, flags=re.MULTILINE))


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def load_generator() -> ModuleType:
    return load_script(DOCS / "make_operations.py")


def test_operations_page_is_current() -> None:
    page = load_generator().page()
    assert read("docs/operations.md") == page, "run python docs/make_operations.py"
    assert max(map(len, page.splitlines())) <= 120


def test_check_fails_when_the_page_is_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = load_generator()
    monkeypatch.setattr(generator, "PAGE", tmp_path / "operations.md")
    monkeypatch.setattr(generator, "page", lambda: "new")
    monkeypatch.setattr("sys.argv", ["make_operations.py", "--check"])
    assert generator.main() == 1  # there is none
    (tmp_path / "operations.md").write_text("old")
    assert generator.main() == 1
    assert (tmp_path / "operations.md").read_text() == "old"
    assert "stale" in capsys.readouterr().err
    (tmp_path / "operations.md").write_text("new")
    assert generator.main() == 0


def test_mpsgraph_names_lead_to_the_operation() -> None:
    """A row that has the name in MPSGraph also has the link to the operation; gradients have no entry of their own."""
    rows = [(line, code_spans(line)) for line in read("docs/mpsgraph.md").splitlines() if line.startswith("|")]
    missing = []
    for op in _core.ops():
        where = "ts" if hasattr(ts, op["name"]) else "Graph"
        link = "`ts.gradients`" if op["internal"] else f"[`{where}.{op['name']}`]"
        if op["body"] == "control":  # described in a page of its own
            link = f"`ts.{op['name']}`"
        for name in op["mpsgraph"]:
            if not any(link in line and any(span.startswith(name) for span in spans) for line, spans in rows):
                missing.append(f"no row leads from {name} to {link}")
    assert missing == []


def test_links_lead_to_operations() -> None:
    text = read("docs/mpsgraph.md")
    targets = link_targets(text)
    assert set(re.findall(r"\[`([^`]+)`\](?!:)", text)) == set(targets)
    headings = set(re.findall(r"^### (\w+)$", read("docs/operations.md"), flags=re.MULTILINE))
    for label, target in targets.items():
        name = label.split(".")[1]
        assert target == f"operations.md#{name}"
        assert name in headings


@pytest.mark.parametrize("page", [*PAGES, "docs/metal.md", "docs/devices.md"])
def test_python_names_exist(page: str) -> None:
    names = re.findall(rf"\b(ts|{CLASSES})\.(\w+)", "\n".join(code_spans(read(page))))
    missing = [
        f"{owner}.{name}" for owner, name in names if not hasattr(ts if owner == "ts" else getattr(ts, owner), name)
    ]
    assert missing == []


@pytest.mark.skipif(not HEADERS.exists(), reason="the headers are not beside the tests")
def test_cpp_names_exist() -> None:
    headers = "\n".join(path.read_text(encoding="utf-8") for path in sorted(HEADERS.glob("*.h")))
    names = re.findall(r"::(\w+)", "\n".join(code_spans(read("docs/mpsgraph.md"))))
    assert names
    assert [name for name in names if not re.search(rf"\b{name}\b", headers)] == []


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that import topstitch stand for themselves."""
    monkeypatch.chdir(tmp_path)  # some write files
    blocks = [block for block in python_blocks(read(page)) if "import topstitch" in block]
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})


def test_pages_are_linked() -> None:
    readme = read("README.md")
    for page in DOCS.glob("*.md"):
        assert f"(docs/{page.name})" in readme
