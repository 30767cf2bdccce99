# Compares the simulation's Metal headers with Apple's: enum values, selectors and names of protocols and classes.
# Apple's come from the metadata in the macOS wheel of pyobjc-framework-Metal, a path to which is the argument.
from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

HEADERS = Path(__file__).resolve().parent / "include" / "Metal"
COMMENT = re.compile(r"//[^\n]*")
ENUM = re.compile(r"typedef NS_(?:ENUM|OPTIONS)\(\w+, (\w+)\) \{(.*?)\};", re.DOTALL)
INTERFACE = re.compile(r"^@(protocol|interface) (\w+)(?! *;)[^\n;]*\n(.*?)^@end", re.DOTALL | re.MULTILINE)
METHOD = re.compile(r"^- \([^;]*?;", re.DOTALL | re.MULTILINE)
PROPERTY = re.compile(r"^@property(\([^)]*\))? [^;]*?(\w+);", re.MULTILINE)


def header_text() -> str:
    texts = [COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sorted(HEADERS.glob("*.h"))]
    return "\n".join(texts)


def enum_values(text: str) -> dict[str, int]:
    """Our enumerators; each must have a value that is plain arithmetic."""
    values = {}
    for _, body in ENUM.findall(text):
        for entry in filter(None, (part.strip() for part in body.split(","))):
            name, expression = (part.strip() for part in entry.split("="))
            if not re.fullmatch(r"[0-9()<+ ]+", expression):
                raise SystemExit(f"{name} has no value that can be read: {expression}")
            values[name] = eval(expression)
    return values


def without_parentheses(text: str) -> str:
    """Types and block signatures go, and with them every parenthesis."""
    while True:
        shorter = re.sub(r"\([^()]*\)", " ", text)
        if shorter == text:
            return text
        text = shorter


def selector_of(method: str) -> str:
    plain = without_parentheses(method.strip("- ;\n"))
    parts = re.findall(r"(\w+)\s*:", plain)
    return "".join(f"{part}:" for part in parts) if parts else plain.split()[0]


def selectors(text: str) -> dict[str, list[str]]:
    """Our selectors, with the protocols and classes that declare them; properties give a getter and a setter."""
    found: dict[str, list[str]] = {}
    for _, owner, body in INTERFACE.findall(text):
        names = [selector_of(method) for method in METHOD.findall(body)]
        for attributes, name in PROPERTY.findall(body):
            names.append(name)
            if "readonly" not in attributes:
                names.append(f"set{name[0].upper()}{name[1:]}:")
        for name in names:
            found.setdefault(name, []).append(owner)
    return found


def apple_metadata(wheel: Path) -> tuple[dict[str, int], set[str]]:
    """The values of Apple's enumerators, and every word in the compiled part and the metadata."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("Metal/_metadata.py").decode()
        (library,) = [name for name in archive.namelist() if re.fullmatch(r"Metal/_Metal\..*so", name)]
        compiled = archive.read(library)
    values = {name: int(value) for name, value in re.findall(r"\b(MTL\w+)@(-?\d+)", metadata)}
    words = {word.decode() for word in re.findall(rb"[A-Za-z_][\w:]+", compiled)}
    words |= set(re.findall(r"[A-Za-z_][\w:]+", metadata))
    return values, words


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: check_headers.py pyobjc_framework_metal-...-macosx_....whl", file=sys.stderr)
        return 2
    apple_values, apple_words = apple_metadata(Path(sys.argv[1]))
    text = header_text()
    ours, methods = enum_values(text), selectors(text)
    protocols = [owner for kind, owner, _ in INTERFACE.findall(text) if kind == "protocol"]
    wrong = [
        f"{name} is {value}, but Apple's is {apple_values.get(name)}"
        for name, value in ours.items()
        if apple_values.get(name) != value
    ]
    wrong += [f"{protocol} is no protocol of Apple's" for protocol in protocols if protocol not in apple_words]
    # The wheel lists all of a protocol, but of a class only what PyObjC does not find by itself.
    unknown = {name: owners for name, owners in methods.items() if name not in apple_words}
    unchecked = [name for name, owners in unknown.items() if not set(owners) & set(protocols)]
    wrong += [f"no selector {name} (of {', '.join(unknown[name])})" for name in unknown if name not in unchecked]
    print("\n".join(wrong + [f"not in the wheel, so not compared: {name}" for name in unchecked]))
    checked = f"{len(ours)} enumerators, {len(methods) - len(unchecked)} selectors, {len(protocols)} protocols"
    print(f"{checked} compared with Apple's: {len(wrong)} wrong")
    return 1 if wrong or not ours or not methods else 0


if __name__ == "__main__":
    sys.exit(main())
