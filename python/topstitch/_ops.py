"""The functions of all operations, made from the registry of the C++ core when they are first asked for.

Each takes tensors (arrays and numbers become constants), attributes by keyword or position, and a name.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import inspect


def _python_name(attribute: str) -> str:
    """Python spells a list of axes as NumPy does."""
    return "axis" if attribute == "axes" else attribute


def _convert(op: str, name: str, kind: str, value: Any) -> Any:
    """Let an integer stand for a list of one, pairs of paddings for all in turn, and text for a rule ("same")."""
    if kind != "integers" or isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        pairs = name == "padding" and len(value) > 0 and {type(pair) for pair in value} <= {list, tuple}
        return [amount for pair in value for amount in pair] if pairs else value
    try:
        return [operator.index(value)]
    except TypeError:
        pass  # a sequence, it should be
    try:
        return list(value)
    except TypeError:
        raise _core.DTypeError(f"[{op}] {name} must be an integer or a list of integers, not {value!r}") from None


def _docstring(op: dict[str, Any]) -> str:
    lines = [op["doc"], "", "Parameters", "----------"]
    lines += [f"{arg['name']}\n    {arg['doc']}" for arg in op["args"]]
    for attribute in op["attributes"]:
        choices = f". One of {', '.join(map(repr, attribute['choices']))}." if attribute["choices"] else ""
        lines.append(f"{_python_name(attribute['name'])}\n    {attribute['doc']}{choices}")
    if op["mpsgraph"]:
        lines += ["", f"MPSGraph: {', '.join(op['mpsgraph'])}."]
    if op["onnx"]:
        lines += ["", f"ONNX: {op['onnx']}."]
    return "\n".join(lines)


def _signature(op: dict[str, Any]) -> inspect.Signature:
    """Tensors, then required attributes, then optional tensors and attributes, then the name."""
    import inspect  # takes longer to import than what uses no function needs

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    required = [inspect.Parameter(arg["name"], kind) for arg in op["args"] if not arg["optional"]]
    required += [inspect.Parameter(_python_name(a["name"]), kind) for a in op["attributes"] if a["required"]]
    optional = [inspect.Parameter(arg["name"], kind, default=None) for arg in op["args"] if arg["optional"]]
    optional += [
        inspect.Parameter(_python_name(a["name"]), kind, default=a["default"])
        for a in op["attributes"]
        if not a["required"]
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    graph = [inspect.Parameter("graph", keyword, default=None)] if _needs_no_tensor(op) else []
    return inspect.Signature([*required, *optional, *graph, inspect.Parameter("name", keyword, default="")])


def _needs_no_tensor(op: dict[str, Any]) -> bool:
    """The graph has to be told, then."""
    return all(arg["optional"] for arg in op["args"])


def _fill_in(op_name: str, inputs: list[Any], graph: _core.Graph | None) -> None:
    """Drops optional inputs that are left out at the end; those before others become `absent`."""
    while inputs and inputs[-1] is None:
        inputs.pop()
    missing = [k for k, given in enumerate(inputs) if given is None]
    if not missing:
        return
    for given in inputs:
        if graph is None and isinstance(given, _core.Tensor):
            graph = given.graph
    if graph is None:
        raise TypeError(f"{op_name}() got no Tensor, so the graph is not known; make one of the inputs a tensor")
    absent = graph.apply("absent", [], {}, "")[0]
    for k in missing:
        inputs[k] = absent


def _make(op: dict[str, Any]) -> Callable[..., Any]:
    op_name: str = op["name"]
    signature = _signature(op)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    takes_graph = "graph" in signature.parameters
    position = {parameter.name: k for k, parameter in enumerate(parameters)}
    defaults = [parameter.default for parameter in parameters]
    arguments = [(position[arg["name"]], arg["variadic"], arg["optional"]) for arg in op["args"]]
    attributes = [(position[_python_name(a["name"])], a["name"], a["kind"]) for a in op["attributes"]]
    one_result = len(op["results"]) == 1 and not op["many_results"]

    def function(*args: Any, name: str = "", **kwargs: Any) -> Any:
        graph = kwargs.pop("graph", None) if takes_graph else None
        if len(args) > len(defaults):
            raise TypeError(f"{op_name}() takes at most {len(defaults)} arguments ({len(args)} given): {signature}")
        values = [*args, *defaults[len(args) :]]
        for keyword, value in kwargs.items():
            k = position.get(keyword)
            if k is None:
                raise TypeError(f"{op_name}() has no argument {keyword!r}: {signature}")
            if k < len(args):
                raise TypeError(f"{op_name}() got {keyword!r} twice: {signature}")
            values[k] = value
        for k, value in enumerate(values):
            if value is signature.empty:
                raise TypeError(f"{op_name}() misses {parameters[k].name!r}: {signature}")
        inputs: list[Any] = []
        for k, variadic, optional in arguments:
            if values[k] is None:
                if not optional:
                    raise TypeError(f"{op_name}() needs a tensor as {parameters[k].name!r}, but got None")
                inputs.append(None)
            elif variadic:
                if isinstance(values[k], _core.Tensor):
                    raise TypeError(f"{op_name}() takes a list of tensors as {parameters[k].name!r}")
                inputs.extend(values[k])
            else:
                inputs.append(values[k])
        _fill_in(op_name, inputs, graph)
        given = {
            key: _convert(op_name, parameters[k].name, kind, values[k])
            for k, key, kind in attributes
            if values[k] is not None
        }
        if graph is None:
            outputs = _core.apply(op_name, inputs, given, name)
        else:
            outputs = graph.apply(op_name, inputs, given, name)
        return outputs[0] if one_result else outputs

    function.__name__ = function.__qualname__ = op_name
    function.__module__ = "topstitch"
    function.__doc__ = _docstring(op)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


_PUBLIC = {op["name"]: op for op in _core.ops() if not op["internal"] and op["body"] != "builtin"}
__all__ = list(_PUBLIC)


@functools.cache
def _function(name: str) -> Callable[..., Any]:
    return _make(_PUBLIC[name])


def __getattr__(name: str) -> Callable[..., Any]:
    # Never stored as globals of this module, where they would hide the builtins `all`, `sum`, `max`, ...
    if name in _PUBLIC:
        return _function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
