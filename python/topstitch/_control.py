"""Branches and loops: `if_else`, `while_loop`, `for_loop` and `scan`.

Their bodies are Python functions, called once, while the graph is described. What is carried may be a tensor or a
nested tuple, list or dict of tensors; numbers and arrays become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _core, _ops

Structure = Any  # a tensor, None, or a tuple, list or dict of structures


def _flatten(op: str, what: str, value: Structure, leaves: list[Any]) -> Any:
    """Appends the leaves of `value` and gives its form, with positions in place of leaves."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: _flatten(op, what, part, leaves) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_flatten(op, what, part, leaves) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_flatten(op, what, part, leaves) for part in value)
    if callable(value) and not isinstance(value, _core.Tensor):
        raise TypeError(f"[{op}] {what} holds a function, {value!r}; tensors and numbers are allowed")
    leaves.append(value)
    return len(leaves) - 1


def _unflatten(form: Any, leaves: Sequence[Any]) -> Structure:
    if form is None:
        return None
    if isinstance(form, int):
        return leaves[form]
    if isinstance(form, dict):
        return {key: _unflatten(part, leaves) for key, part in form.items()}
    if hasattr(form, "_fields"):
        return type(form)(*(_unflatten(part, leaves) for part in form))
    return type(form)(_unflatten(part, leaves) for part in form)


def _describe(form: Any) -> str:
    """The form for messages: `(_, {'h': _})`."""
    if form is None:
        return "None"
    if isinstance(form, int):
        return "_"
    if isinstance(form, dict):
        return "{" + ", ".join(f"{key!r}: {_describe(part)}" for key, part in form.items()) + "}"
    inner = ", ".join(_describe(part) for part in form)
    return f"[{inner}]" if isinstance(form, list) else f"({inner}{',' if len(form) == 1 else ''})"


def _graph_of(op: str, graph: _core.Graph | None, *values: Structure) -> _core.Graph:
    if graph is not None:
        return graph
    leaves: list[Any] = []
    for value in values:
        _flatten(op, "an argument", value, leaves)
    for leaf in leaves:
        if isinstance(leaf, _core.Tensor):
            return leaf.graph
    raise TypeError(
        f"[{op}] none of the arguments is a Tensor, so the graph is not known; "
        "make one of them a tensor with Graph.constant, or give graph=..."
    )


def _tensors(op: str, what: str, leaves: Sequence[Any], graph: _core.Graph, like: Sequence[Any] = ()) -> list[Any]:
    """Numbers and arrays as constants; plain numbers adapt to the tensor at the same place of `like`."""
    tensors = []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, _core.Tensor):
            tensors.append(leaf)
            continue
        plain = isinstance(leaf, (bool, int, float, complex))
        dtype = like[k].dtype if plain and k < len(like) else None
        try:
            tensors.append(graph.constant(leaf, dtype=dtype))
        except TypeError as error:
            raise TypeError(
                f"[{op}] {what} holds {leaf!r:.60}, which is neither a tensor nor a number: {error}"
            ) from None
    return tensors


def _returned(op: str, what: str, value: Structure, form: Any, graph: _core.Graph, like: Sequence[Any]) -> list[Any]:
    """The leaves of what a body returns, which must have the given form."""
    leaves: list[Any] = []
    got = _flatten(op, what, value, leaves)
    if got != form:
        raise ValueError(
            f"[{op}] {what} has the form {_describe(got)}, but {_describe(form)} is carried; "
            "return the same structure, with a new tensor for each"
        )
    return _tensors(op, what, leaves, graph, like)


def if_else(
    predicate: _core.Tensor,
    then: Callable[..., Structure],
    otherwise: Callable[..., Structure],
    *operands: Structure,
    name: str = "",
) -> Structure:
    """`then(*operands)` where the predicate holds, else `otherwise(*operands)`; only one of them is computed.

    Args:
        predicate: scalar bool tensor.
        then, otherwise: functions that give tensors, or tuples, lists or dicts of them: both the same structure, with
            the same dtypes and shapes. They may use any tensor of the graph.
        operands: passed on to both.
        name: of the operation.

    Returns:
        What the function returns. Differentiable.

    Raises:
        ValueError: when the two do not fit together, or the predicate is not a scalar.
        TypeError: when the predicate is not a bool.
    """
    if not isinstance(predicate, _core.Tensor):
        raise TypeError(
            f"[if_else] the predicate is {predicate!r:.60}; it must be a bool tensor (use Python's own `if` for values "
            "that are known while the graph is described)"
        )
    graph = predicate.graph
    forms: list[Any] = []

    def traced(function: Callable[..., Structure]) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            leaves: list[Any] = []
            forms.append(_flatten("if_else", "what a branch returns", function(*operands), leaves))
            if forms[0] != forms[-1]:
                raise ValueError(
                    f"[if_else] one branch returns {_describe(forms[0])} and the other {_describe(forms[-1])}; "
                    "both must return the same structure"
                )
            return _tensors("if_else", "what a branch returns", leaves, graph)

        return run

    results = _core.if_else(predicate, traced(then), traced(otherwise), name)
    return _unflatten(forms[0], results)


def while_loop(
    condition: Callable[[Any], _core.Tensor],
    body: Callable[[Any], Structure],
    initial: Structure,
    *,
    graph: _core.Graph | None = None,
    name: str = "",
) -> Structure:
    """Repeats `carried = body(carried)` while `condition(carried)` holds, from `initial`.

    Args:
        condition: takes what is carried, gives a scalar bool tensor.
        body: takes what is carried, gives the same structure with the same dtypes and shapes.
        initial: a tensor, or a tuple, list or dict of tensors; numbers and arrays become constants.
        graph: needed when no tensor is among `initial`.
        name: of the operation.

    Returns:
        What is carried after the last iteration. Not differentiable, because the number of iterations is not known;
        `for_loop` and `scan` are.

    Raises:
        ValueError, TypeError: when the body or the condition gives something else.
    """
    around = _graph_of("while_loop", graph, initial)
    leaves: list[Any] = []
    form = _flatten("while_loop", "initial", initial, leaves)
    tensors = _tensors("while_loop", "initial", leaves, around)

    def decide(carried: list[Any]) -> Any:
        decided = condition(_unflatten(form, carried))
        if not isinstance(decided, _core.Tensor):
            raise TypeError(f"[while_loop] the condition gives {decided!r:.60}; it must give a scalar bool tensor")
        return decided

    def step(carried: list[Any]) -> list[Any]:
        made = body(_unflatten(form, carried))
        return _returned("while_loop", "what the body returns", made, form, around, carried)

    return _unflatten(form, _core.while_loop(tensors, decide, step, name))


def scan(
    body: Callable[[Any, Any], tuple[Structure, Structure]],
    initial: Structure,
    sequences: Structure = None,
    *,
    length: int | str | None = None,
    reverse: bool = False,
    graph: _core.Graph | None = None,
    name: str = "",
) -> tuple[Structure, Structure]:
    """A loop along the first axis of `sequences`: `carried, output = body(carried, parts)` for each index.

    Args:
        body: takes what is carried and the parts of the sequences at one index; gives the new carried structure, with
            the dtypes and shapes of `initial`, and a structure of outputs (or None).
        initial: what is carried at first: a tensor, or a tuple, list or dict of tensors; numbers and arrays become
            constants. None when nothing is carried.
        sequences: a structure of tensors whose first axes agree, or None.
        length: the number of iterations; needed without sequences. A number or the name of a dim.
        reverse: from the last index to the first.
        graph: needed when there is no tensor among the arguments.
        name: of the operation.

    Returns:
        What is carried after the last iteration, and the outputs of all, stacked along a new first axis in the order
        of the sequences. Differentiable: each iteration is computed again in the gradient, from what was carried then.

    Raises:
        ValueError, TypeError: when the body gives something else, or lengths disagree.
    """
    around = _graph_of("scan", graph, initial, sequences)
    leaves: list[Any] = []
    form = _flatten("scan", "initial", initial, leaves)
    tensors = _tensors("scan", "initial", leaves, around)
    parts: list[Any] = []
    part_form = _flatten("scan", "sequences", sequences, parts)
    output_form: list[Any] = []

    def step(_index: Any, carried: list[Any], here: list[Any]) -> tuple[list[Any], list[Any]]:
        made: Any = body(_unflatten(form, carried), _unflatten(part_form, here))
        if not isinstance(made, tuple) or len(made) != 2:
            raise TypeError(f"[scan] the body returns {made!r:.60}; it must return a pair: (carried, output)")
        outputs: list[Any] = []
        output_form.append(_flatten("scan", "the output", made[1], outputs))
        return (
            _returned("scan", "what the body carries on", made[0], form, around, carried),
            _tensors("scan", "the output", outputs, around),
        )

    sequence_tensors = _tensors("scan", "sequences", parts, around)
    carried, stacked = _core.scan(around, tensors, sequence_tensors, step, length, reverse, name)
    return _unflatten(form, carried), _unflatten(output_form[0], stacked)


def _bound(bound: Any, graph: _core.Graph) -> Any:
    """A bound of a range as an int64 tensor, in which no index of 32 bits and no step beyond the last overflows."""
    if not isinstance(bound, _core.Tensor):
        return graph.constant(bound, dtype=_core.int64)
    if not bound.dtype.is_integer or bound.shape != ():
        raise _core.DTypeError(
            f"[for_loop] the count and the bounds of a range must be integer scalars, not {bound.dtype} of shape "
            f"{bound.shape}; cast and reshape the tensor"
        )
    return _ops.cast(bound, dtype=_core.int64)


def _iterations(first: Any, last: Any, stride: Any) -> Any:
    """How many numbers range(first, last, stride) has; none where the step is not positive."""
    steps = (last - first + stride - 1) // _ops.maximum(stride, 1)
    return _ops.where(stride > 0, _ops.maximum(steps, 0), 0)


def for_loop(
    count: int | str | _core.Tensor | tuple[Any, ...],
    body: Callable[[Any, Any], Structure],
    initial: Structure,
    *,
    graph: _core.Graph | None = None,
    name: str = "",
) -> Structure:
    """Repeats `carried = body(index, carried)` for index = 0 .. count - 1, or over a half-open range.

    Args:
        count: the number of iterations (a number, the name of a dim, or an integer scalar tensor), or a range: (lower,
            upper) or (lower, upper, step) of numbers or integer scalar tensors, whose values int32 can hold. The step
            must be positive: a number that is not is an error, and a tensor that is not gives no iterations.
        body: takes the index (an int32 scalar) and what is carried; gives the same structure.
        initial: a tensor, or a tuple, list or dict of tensors; numbers and arrays become constants.
        graph: needed when there is no tensor among the arguments.
        name: of the operation.

    Returns:
        What is carried after the last iteration. Differentiable when the number of iterations is not a tensor.

    Raises:
        ValueError, TypeError: for a range that is not one, and when the body gives something else.
    """
    around = _graph_of("for_loop", graph, initial, count if isinstance(count, _core.Tensor) else None)
    leaves: list[Any] = []
    form = _flatten("for_loop", "initial", initial, leaves)
    tensors = _tensors("for_loop", "initial", leaves, around)
    bounds = count if isinstance(count, tuple) else (0, count)
    if len(bounds) not in (2, 3):
        raise ValueError(f"[for_loop] the range {count!r:.60} must be (lower, upper) or (lower, upper, step)")
    lower, upper, step = (*bounds, 1)[:3]
    if isinstance(step, int) and step < 1:
        raise ValueError(f"[for_loop] the step is {step}; it must be at least 1")

    def iterate(index: Any, carried: list[Any]) -> list[Any]:
        made = body(index, _unflatten(form, carried))
        return _returned("for_loop", "what the body returns", made, form, around, carried)

    if any(isinstance(bound, _core.Tensor) for bound in (lower, upper, step)):
        first, last, stride = (_bound(bound, around) for bound in (lower, upper, step))
        iterations = _iterations(first, last, stride)
        results = _core.while_loop(
            [around.constant(0, dtype=_core.int64), *tensors],
            lambda carried: _ops.less(carried[0], iterations),
            lambda carried: [
                carried[0] + 1,
                *iterate(_ops.cast(first + carried[0] * stride, dtype=_core.int32), carried[1:]),
            ],
            name,
        )
        return _unflatten(form, results[1:])
    length: int | str = upper
    if isinstance(upper, int):
        length = max(0, -((lower - upper) // step))
    elif (lower, step) != (0, 1):
        raise ValueError("[for_loop] a range to a named dim goes from 0 in steps of 1; give the name alone")

    def numbered(index: Any, carried: list[Any], _parts: list[Any]) -> tuple[list[Any], list[Any]]:
        scaled = index if step == 1 else index * step
        return iterate(scaled if lower == 0 else scaled + lower, carried), []

    return _unflatten(form, _core.scan(around, tensors, [], numbered, length, False, name)[0])
