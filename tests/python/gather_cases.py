"""The rows of op_cases.py for gather and scatter: indices that repeat, count from the end, and are out of range."""

from __future__ import annotations

from typing import Any

import gather_reference as reference
from op_cases import Case

MODES = tuple(reference.COMBINE)
SOME = ("float32", "float64", "int32", "float16")


def gathers(kind: str, shapes: Any, within: tuple[int, int], **where: int) -> Case:
    return Case(lambda x, i: reference.gather(kind, x, i, **where), shapes, attrs=dict(where), dtypes=SOME,
                input_dtypes=(None, "int32"), integer_domains={1: within}, grad_inputs=(0,))  # fmt: skip


def scatters(kind: str, shapes: Any, within: tuple[int, int], mode: str, **where: int) -> Case:
    factors = mode in ("multiply", "divide")
    exact = mode in ("set", "min", "max")
    return Case(lambda x, i, u: reference.scatter(kind, x, i, u, mode, **where), shapes, attrs={"mode": mode, **where},
                dtypes=(*SOME, "int64", "uint8") if exact else ("float32", "float64"),
                input_dtypes=(None, "int64", None), integer_domains={1: within}, tolerance=16,
                domain=(0.5, 2.0) if factors else (-3.0, 3.0), distinct=exact, second=mode != "divide",
                grad_inputs=(0, 2))  # fmt: skip


ROWS = {
    "gather": [
        gathers("", ((5, 4), (2, 3)), (-6, 6), axis=0),
        gathers("", ((2, 5, 3), (2, 4)), (-5, 4), axis=1, batch_dims=1),
        gathers("", ((3, 7), ()), (0, 6), axis=-1),
    ],
    "gather_nd": [
        gathers("_nd", ((4, 5, 3), (6, 2)), (-5, 5)),
        gathers("_nd", ((2, 4, 3), (2, 5, 1)), (-4, 3), batch_dims=1),
    ],
    "gather_along_axis": [
        gathers("_along_axis", ((3, 6), (3, 4)), (-6, 7)),
        gathers("_along_axis", ((3, 6), (3, 20)), (-7, 6)),
        gathers("_along_axis", ((6, 1), (9, 4)), (0, 5), axis=0),
    ],
    "scatter": [
        *[scatters("", ((5, 4), (6,), (6, 4)), (-6, 5), mode, axis=0) for mode in MODES],
        scatters("", ((2, 5, 3), (2, 4), (2, 4, 3)), (-5, 4), "add", axis=1, batch_dims=1),
    ],
    "scatter_nd": [scatters("_nd", ((4, 5, 3), (9, 2), (9, 3)), (-5, 4), mode) for mode in ("set", "add", "max")],
    "scatter_along_axis": [
        scatters("_along_axis", ((3, 5), (3, 8), (3, 8)), (-6, 5), mode) for mode in ("set", "add", "min")
    ],
}
