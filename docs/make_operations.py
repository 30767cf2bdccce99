"""Writes docs/operations.md, the reference of all operations, from the registry of the installed package.

`--check` writes nothing; it fails when the page differs from what would be written.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated_page import write_or_check

import topstitch as ts
from topstitch import _core

PAGE = Path(__file__).resolve().with_name("operations.md")
WIDTH = 120

INTRODUCTION = """\
# Operations

<!-- Made by docs/make_operations.py from the registry. Change the OpDef in cpp/ops, build, and run the script again.
-->

All operations, by family: {functions} functions, and {others} that are called on the graph. `help(ts.add)` shows the
same facts about one of them.

- Every operation also takes a `name`. Arrays and numbers are accepted in place of tensors, when one argument at least
  is a tensor. A plain number takes the dtype of the tensors beside it. Dtypes are never mixed: convert with `cast`.
- Shapes *broadcast* as in NumPy: from the last dim backwards, where a dim of 1 or a missing one is repeated.
- *Dtypes* tells what each argument accepts, and what comes out. *Integers* are int8 to int64 and uint8 to uint64;
  *floats* are float16, bfloat16, float32 and float64; *numbers* are both, and complex64.
- *Gradient* tells whether `ts.gradients` passes through: by a rule of the operation, or through the operations that it
  is made of. Gradients with respect to complex tensors are not available yet.
- A list of axes may be given as one integer. It is called `axes` in C++ and in `Graph.apply`, where it is `axis` here.
- The C++ functions have the same names and order of arguments (`topstitch/ops.h`, namespace `topstitch`). One result is
  a `Tensor`, several are a `std::vector<Tensor>`.
- [mpsgraph.md](mpsgraph.md) goes from the methods of MPSGraph to these operations.
"""

FAMILIES = {"builtin": "Inputs and state"}
KINDS = {
    "boolean": "a bool",
    "integer": "an integer",
    "real": "a number",
    "string": "text",
    "dtype": "a dtype",
    "integers": "a list of integers",
    "shape": "a shape",
    "array": "an array",
}

DTYPES = [
    ts.bool_, ts.int8, ts.int16, ts.int32, ts.int64, ts.uint8, ts.uint16, ts.uint32, ts.uint64,
    ts.float16, ts.bfloat16, ts.float32, ts.float64, ts.complex64,
]  # fmt: skip
INTEGERS = [dtype for dtype in DTYPES if dtype.is_integer]
FLOATS = [dtype for dtype in DTYPES if dtype.is_floating]
# Attributes that every operation accepts beside tensors of unknown rank, to find out which dtypes it accepts.
SAMPLES = {"integer": 1, "real": 1.0, "integers": [0], "shape": (1,), "dtype": "float32"}
SAMPLES_OF: dict[str, dict[str, Any]] = {"split": {"num_splits": 1}}
SAMPLES_BY_NAME: dict[str, Any] = {"kernel": [1]}
# What Markdown may take for markup: a star beside something other than a space, a tag, a link.
MARKUP = re.compile(r"(?<=\S)\*|\*(?=\S)|<(?=[a-zA-Z/!])|\](?=[(\[])")


def python_name(attribute: str) -> str:
    return "axis" if attribute == "axes" else attribute


def as_code(value: Any) -> str:
    if isinstance(value, ts.DType):
        return f"ts.{value.name}_" if value.name == "bool" else f"ts.{value.name}"  # as Python has a bool of its own
    return f'"{value}"' if isinstance(value, str) else repr(value)


def signature(op: dict[str, Any]) -> str:
    """How the operation is called from Python, without `name`."""
    name = op["name"]
    if hasattr(ts, name):
        parameters = [p for p in inspect.signature(getattr(ts, name)).parameters.values() if p.name != "name"]
        texts = [p.name if p.default is p.empty else f"{p.name}={as_code(p.default)}" for p in parameters]
        return f"ts.{name}({', '.join(texts)})"
    if hasattr(ts.Graph, name):
        # pybind11 writes "placeholder(self: Graph, shape: object, dtype: DType = topstitch.float32, ...) -> Tensor".
        inside = getattr(ts.Graph, name).__doc__.splitlines()[0].split("(", 1)[1].rsplit(") ->", 1)[0]
        found = re.findall(r"(\w+): [^=,]+(?:= ([^,]+))?", inside)
        texts = [f"{n}={default.replace('topstitch.', 'ts.')}" if default else n for n, default in found]
        return f"graph.{name}({', '.join(text for text in texts[1:] if not text.startswith('name='))})"
    return f'graph.apply("{name}", [{", ".join(arg["name"] for arg in op["args"])}])'


class Probe:
    """Finds out which dtypes an operation accepts, by creating it."""

    def __init__(self, op: dict[str, Any]) -> None:
        self.name = op["name"]
        self.graph = ts.Graph()
        self.inputs = {dtype: self.graph.placeholder(None, dtype=dtype) for dtype in DTYPES}
        required = [a for a in op["attributes"] if a["required"]]
        self.attributes = {a["name"]: SAMPLES_BY_NAME.get(a["name"], SAMPLES[a["kind"]]) for a in required}
        self.attributes.update(SAMPLES_OF.get(self.name, {}))
        usual = itertools.product([ts.float32, ts.int32, ts.bool_, ts.complex64, ts.uint64], repeat=len(op["args"]))
        self.usual = next(dtypes for dtypes in usual if self.result(dtypes))

    def result(self, dtypes: tuple[ts.DType, ...]) -> ts.DType | None:
        """The dtype of the first result on inputs of these dtypes, or None when they are refused."""
        try:
            outputs = self.graph.apply(self.name, [self.inputs[dtype] for dtype in dtypes], self.attributes)
        except ts.UserError:
            return None
        return outputs[0].dtype

    def accepted(self, k: int) -> dict[ts.DType, ts.DType]:
        """The dtypes that argument `k` accepts, each with that of the result."""
        found = {}
        for dtype in DTYPES:
            alone = tuple(dtype if j == k else usual for j, usual in enumerate(self.usual))
            alike = tuple(dtype if usual == self.usual[k] else usual for usual in self.usual)
            if result := self.result(alone) or self.result(alike):
                found[dtype] = result
        return found


def describe(dtypes: list[ts.DType]) -> str:
    """A list of dtypes in words."""
    if dtypes == DTYPES:
        return "every dtype"
    words = {"numbers": [*INTEGERS, *FLOATS, ts.complex64], "integers": INTEGERS, "floats": FLOATS}
    parts = []
    rest = list(dtypes)
    for word, group in words.items():
        if all(dtype in rest for dtype in group):
            parts.append(word)
            rest = [dtype for dtype in rest if dtype not in group]
    return ", ".join(
        [dtype.name for dtype in rest[:1] if dtype == ts.bool_] + parts + [d.name for d in rest if d != ts.bool_]
    )


def result_text(op: dict[str, Any], names: list[str], accepted: list[dict[ts.DType, ts.DType]]) -> str:
    if len(op["results"]) > 1 and set(op["results"]) <= set(names):
        return "Each result has the dtype of the argument of its name."
    noun = "Each result" if op["many_results"] else "The result"
    # The argument that decides is the first one that has a choice.
    name, results = next(
        (pair for pair in zip(names, accepted, strict=True) if len(pair[1]) > 1), (names[0], accepted[0])
    )
    for attribute in op["attributes"]:
        if attribute["kind"] == "dtype":
            fixed = attribute["required"] or attribute["default"]
            return f"{noun} has the dtype that is given" + ("." if fixed else f", else that of `{name}`.")
    changed = {dtype: result for dtype, result in results.items() if result != dtype}
    if changed and len(set(results.values())) == 1:
        return f"{noun} is {next(iter(changed.values())).name}."
    exceptions = "".join(f", but {dtype.name} gives {result.name}" for dtype, result in changed.items())
    return f"{noun} has the dtype of `{name}`{exceptions}."


def dtype_text(op: dict[str, Any]) -> str:
    probe = Probe(op)
    names = [arg["name"] for arg in op["args"]]
    if not names:
        return f"The result is {probe.result(()).name}."
    accepted = [probe.accepted(k) for k in range(len(names))]
    groups = []
    for dtypes, members in itertools.groupby(zip(accepted, names, strict=True), key=lambda pair: list(pair[0])):
        groups.append(f"{', '.join(f'`{name}`' for _, name in members)}: {describe(dtypes)}")
    return f"{'; '.join(groups)}. {result_text(op, names, accepted)}"


def gradient_text(op: dict[str, Any]) -> str:
    statement: str = op["gradient"]
    return statement.removeprefix("differentiable ").replace("not differentiable, because", "none, because") + "."


def escaped(text: str) -> str:
    """Text in which Markdown sees no markup, but for code in backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else MARKUP.sub(r"\\\g<0>", part) for part in parts)


def wrapped(text: str, indent: str = "") -> str:
    """Lines of at most WIDTH columns, none of which looks like the beginning of a list or a heading."""
    options = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(text, WIDTH - 1, initial_indent=indent and "- ", subsequent_indent=indent, **options)
    first = 1 if indent else 0
    plain = [re.sub(r"^(\s*)(?=([-+*#]|\d+[.)])(\s|$)|>)", r"\1\\", line) for line in lines[first:]]
    return "\n".join([*lines[:first], *plain])


def sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def argument_texts(op: dict[str, Any]) -> Iterator[str]:
    for arg in op["args"]:
        what = "; a list" if arg["variadic"] else "; may be left out" if arg["optional"] else ""
        yield f"`{arg['name']}`: {escaped(sentence(arg['doc'] + what))}"
    for attribute in op["attributes"]:
        kind = KINDS[attribute["kind"]]
        if attribute["choices"]:
            choices = "one of " + ", ".join(f'`"{choice}"`' for choice in attribute["choices"])
            kind = choices if attribute["kind"] == "string" else f"{kind}, or {choices}"
        yield f"`{python_name(attribute['name'])}`, {kind}: {escaped(sentence(attribute['doc']))}"


def facts(op: dict[str, Any]) -> str:
    parts = []
    if op["body"] != "builtin":
        parts.append(f"*Dtypes*: {dtype_text(op)}")
    if op["args"]:
        parts.append(f"*Gradient*: {escaped(gradient_text(op))}")
    if op["mpsgraph"]:
        parts.append(f"*MPSGraph*: {', '.join(f'`{name}`' for name in op['mpsgraph'])}.")
    if op["onnx"]:
        parts.append(f"*ONNX*: `{op['onnx']}`.")
    return " ".join(parts)


def entry(op: dict[str, Any]) -> Iterator[str]:
    yield f"### {op['name']}\n"
    results = f" gives {', '.join(f'`{name}`' for name in op['results'])}" if len(op["results"]) > 1 else ""
    if op["many_results"]:
        results = f" gives a list, `{op['results'][0]}`"
    yield wrapped(f"`{signature(op)}`{results}") + "\n"
    yield wrapped(escaped(op["doc"])) + "\n"
    method = getattr(ts.Graph, op["name"], None)
    if method and not op["args"]:
        words = method.__doc__.split("\n\n", 1)[1].split()
        yield wrapped(escaped(f"In Python: {' '.join(words)}")) + "\n"
    arguments = [wrapped(text, "  ") for text in argument_texts(op)]
    if arguments:
        yield "\n".join(arguments) + "\n"
    if text := facts(op):
        yield wrapped(text) + "\n"


def page() -> str:
    """The whole page."""
    public = [op for op in _core.ops() if not op["internal"]]
    functions = sum(hasattr(ts, op["name"]) for op in public)
    parts = [INTRODUCTION.format(functions=functions, others=len(public) - functions)]
    families: dict[str, list[dict[str, Any]]] = {}
    for op in public:
        families.setdefault(op["family"], []).append(op)
    for family, ops in families.items():
        title = FAMILIES.get(family, family.capitalize())
        links = ", ".join(f"[{op['name']}](#{op['name']})" for op in ops)
        parts.append(wrapped(f"**[{title}](#{title.lower().replace(' ', '-')})**: {links}") + "\n")
    for family, ops in families.items():
        parts.append(f"## {FAMILIES.get(family, family.capitalize())}\n")
        for op in ops:
            parts.extend(entry(op))
    return "\n".join(parts)


def main() -> int:
    return write_or_check(PAGE, page, __doc__, "python docs/make_operations.py")


if __name__ == "__main__":
    sys.exit(main())
