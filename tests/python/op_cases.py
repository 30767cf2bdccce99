"""One row or more for each operation: inputs, attributes, and what NumPy or SciPy says the result is.

The generated tests (test_ops_*.py) take everything from here; a test fails when an operation has no row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special as special

from attention_reference import attend, attend_with_sinks
from pool_reference import pooled

FLOATS = ("float32", "float64", "float16", "bfloat16")
REALS = ("float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = FLOATS + INTS
BOOL = ("bool",)
COMPLEX = ("complex64",)


def np_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


@dataclass
class Case:
    """`reference` gets float64 (or exact integer) arrays of what was fed, and gives the expected result."""

    reference: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((3, 5),)
    domain: tuple[float, float] = (-3.0, 3.0)
    attrs: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = FLOATS
    input_dtypes: tuple[str | None, ...] = ()  # fixed dtypes by input; None: that of the row
    integer_domains: dict[int, tuple[int, int]] = field(default_factory=dict)  # by input
    domains: dict[int, tuple[float, float]] = field(default_factory=dict)  # by input
    elementwise: bool = False  # any shape will do
    grad: bool = True  # has a gradient that finite differences can see
    second: bool = True  # and a second one
    grad_inputs: tuple[int, ...] | None = None  # inputs to differentiate; None: all floating ones
    tolerance: float = 4.0  # in units of the dtype's rounding, relative to the largest magnitude involved
    distinct: bool = False  # inputs without ties (max, min, ...)
    by_name: tuple[str, ...] = ()  # inputs that are passed by name, the last ones


def make_input(case: Case, k: int, dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    fixed = case.input_dtypes[k] if k < len(case.input_dtypes) else None
    dtype = fixed or dtype
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTS:
        low, high = case.integer_domains.get(k, (0 if dtype.startswith("u") else -9, 9))
        return rng.integers(low, high + 1, shape).astype(dtype)
    low, high = case.domains.get(k, case.domain)
    if case.distinct:
        count = int(np.prod(shape))
        values = low + (high - low) * (rng.permutation(count) + 0.5) / max(count, 1)
        values = values.reshape(shape)
    else:
        values = rng.uniform(low, high, shape)
    if dtype == "complex64":
        return (values + 1j * rng.uniform(low, high, shape)).astype(np.complex64)
    return values.astype(np_dtype(dtype))


def unary(reference: Callable[..., Any], domain: tuple[float, float] = (-3.0, 3.0), **options: Any) -> list[Case]:
    return [Case(reference, domain=domain, elementwise=True, **options)]


def binary(reference: Callable[..., Any], dtypes: tuple[str, ...] = FLOATS, **options: Any) -> list[Case]:
    return [Case(reference, shapes=((3, 5), (3, 5)), dtypes=dtypes, elementwise=True, **options),
            Case(reference, shapes=((4, 1, 5), (3, 1)), dtypes=dtypes[:1], **options)]  # fmt: skip


def predicate(
    reference: Callable[..., Any], dtypes: tuple[str, ...] = (*NUMBERS, "bool"), **options: Any
) -> list[Case]:
    return binary(reference, dtypes, grad=False, **options)


def reduction(reference: Callable[..., Any], dtypes: tuple[str, ...] = FLOATS, **options: Any) -> list[Case]:
    """Every axis set that a schedule treats differently: last, first, middle, several, all."""
    rows = [({"axis": -1}, {"axis": -1}), ({"axis": 0, "keepdims": True}, {"axis": 0, "keepdims": True}),
            ({"axis": (0, 2)}, {"axis": (0, 2)}), ({}, {})]  # fmt: skip
    return [
        Case(lambda x, _np=np_options: reference(x, **_np), shapes=((4, 3, 37),), attrs=attrs,
             dtypes=dtypes if k == 0 else dtypes[:1], tolerance=options.get("tolerance", 16.0),
             **{key: value for key, value in options.items() if key != "tolerance"})
        for k, (attrs, np_options) in enumerate(rows)
    ]  # fmt: skip


def _round_half_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return special.expit(x)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _integer_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Toward minus infinity for floats and integers; an integer divided by zero gives zero."""
    if a.dtype.kind == "f":
        return np.floor(a / b)
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.remainder(a, b) if a.dtype.kind == "f" else np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b)))


def _fmod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.fmod(a, b) if a.dtype.kind == "f" else np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b)))


def _truncate_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, 0, (a - np.fmod(a, safe)) // safe)


def _shift(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(a, b)


def _popcount(x: np.ndarray) -> np.ndarray:
    width = 8 * x.dtype.itemsize
    return np.vectorize(lambda v: bin(int(v) & ((1 << width) - 1)).count("1"), otypes=[x.dtype])(x)


def _cross_entropy(logits: np.ndarray, labels: np.ndarray, axis: int = -1, reduction: str = "none") -> np.ndarray:
    log_probabilities = special.log_softmax(logits, axis=axis)
    if labels.dtype.kind in "iu":
        rows = -np.take_along_axis(log_probabilities, np.expand_dims(labels, axis).astype(int), axis).squeeze(axis)
    else:
        rows = -(labels * log_probabilities).sum(axis)
    return {"none": rows, "sum": rows.sum(), "mean": rows.mean()}[reduction]


def _sigmoid_cross_entropy(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) - x * z + np.log1p(np.exp(-np.abs(x)))


def _pad(mode: str) -> Callable[..., Any]:
    return lambda x: np.pad(x, ((1, 2), (0, 3)), mode=mode)


def _slice_update(data: np.ndarray, update: np.ndarray) -> np.ndarray:
    result = data.copy()
    result[1:4:2, ::-1] = update
    return result


def _hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 6 + 0.5, 0, 1)


def pooling(axes: int) -> dict[str, list[Case]]:
    """Overlapping windows beside padding, and windows side by side in the other layout."""
    letters = "DHW"[3 - axes :]
    shape = (2, 3, 4, 5, 6)[: 2 + axes]
    first = {"kernel": 3, "stride": 2, "padding": 1}
    second = {"kernel": 2, "data_layout": f"N{letters}C"}
    maxima = [(attrs, pooled("max", axes, **attrs)) for attrs in (first, second)]
    return {
        f"max_pool{axes}d": [
            Case(lambda x, _f=f: _f(x)[0], (shape,), attrs=attrs, dtypes=NUMBERS, second=False, distinct=True)
            for attrs, f in maxima
        ],
        f"max_pool{axes}d_with_indices": [
            Case(lambda x, _f=f: _f(x)[:2], (shape,), attrs=attrs, dtypes=NUMBERS, grad=False, distinct=True)
            for attrs, f in maxima
        ],
        f"avg_pool{axes}d": [Case(pooled("avg", axes, **attrs), (shape,), attrs=attrs) for attrs in (first, second)],
        f"l2_pool{axes}d": [Case(pooled("l2", axes, **attrs), (shape,), attrs=attrs) for attrs in (first, second)],
    }


SHAPE = (4, 3, 5)

CASES: dict[str, list[Case]] = {
    # --- unary
    "identity": unary(lambda x: x, dtypes=(*NUMBERS, "bool", "complex64")),
    "square": unary(np.square, dtypes=(*NUMBERS, "complex64")),
    "negative": unary(np.negative, dtypes=(*NUMBERS, "complex64")),
    "reciprocal": unary(np.reciprocal, (0.3, 3.0), dtypes=(*FLOATS, "complex64")),
    "absolute": unary(np.abs, (0.2, 3.0), dtypes=(*NUMBERS, "complex64")),
    "sign": unary(np.sign, (0.2, 3.0), dtypes=NUMBERS, second=False),
    "ceil": unary(np.ceil, grad=False),
    "floor": unary(np.floor, grad=False),
    "trunc": unary(np.trunc, grad=False),
    "rint": unary(np.rint, grad=False),
    "round": unary(_round_half_away, grad=False),
    "signbit": unary(np.signbit, grad=False, dtypes=FLOATS),
    "is_nan": unary(np.isnan, grad=False),
    "is_inf": unary(np.isinf, grad=False),
    "is_finite": unary(np.isfinite, grad=False),
    "logical_not": unary(np.logical_not, grad=False, dtypes=BOOL),
    "bitwise_not": unary(np.invert, grad=False, dtypes=(*INTS, "bool")),
    "popcount": unary(_popcount, grad=False, dtypes=INTS),
    "exp": unary(np.exp, dtypes=(*FLOATS, "complex64")),
    "exp2": unary(np.exp2),
    "exp10": unary(lambda x: 10.0**x),
    "expm1": unary(np.expm1),
    "log": unary(np.log, (0.3, 9.0)),
    "log2": unary(np.log2, (0.3, 9.0)),
    "log10": unary(np.log10, (0.3, 9.0)),
    "log1p": unary(np.log1p, (-0.7, 5.0)),
    "sqrt": unary(np.sqrt, (0.1, 9.0)),
    "rsqrt": unary(lambda x: 1 / np.sqrt(x), (0.1, 9.0)),
    "cbrt": unary(np.cbrt, (0.2, 9.0)),
    "sin": unary(np.sin),
    "cos": unary(np.cos),
    "tan": unary(np.tan, (-1.2, 1.2)),
    "asin": unary(np.arcsin, (-0.9, 0.9)),
    "acos": unary(np.arccos, (-0.9, 0.9)),
    "atan": unary(np.arctan),
    "sinh": unary(np.sinh),
    "cosh": unary(np.cosh),
    "tanh": unary(np.tanh),
    "asinh": unary(np.arcsinh),
    "acosh": unary(np.arccosh, (1.2, 5.0)),
    "atanh": unary(np.arctanh, (-0.9, 0.9)),
    "erf": unary(special.erf),
    "erfc": unary(special.erfc),
    # --- binary
    "add": binary(np.add, (*NUMBERS, "complex64")),
    "subtract": binary(np.subtract, (*NUMBERS, "complex64")),
    "multiply": binary(np.multiply, (*NUMBERS, "complex64")),
    "divide": binary(np.divide, (*FLOATS, "complex64"), domains={1: (0.4, 3.0)}),
    "divide_no_nan": binary(lambda a, b: np.where(b == 0, 0, a / np.where(b == 0, 1, b)), domains={1: (0.4, 3.0)}),
    "floor_divide": binary(_integer_divide, NUMBERS, domains={1: (0.4, 3.0)}, grad=False),
    "truncate_divide": binary(_truncate_divide, NUMBERS, domains={1: (0.4, 3.0)}, grad=False),
    "remainder": binary(_remainder, ("float32", "float64", *INTS), domains={0: (-3, 3), 1: (3.5, 4.0)}, second=False,
                        tolerance=8),
    "fmod": binary(_fmod, ("float32", "float64", *INTS), domains={0: (0.1, 3), 1: (3.5, 4.0)}, second=False),
    "minimum": binary(np.minimum, NUMBERS, second=False),
    "maximum": binary(np.maximum, NUMBERS, second=False),
    "fmin": binary(np.fmin, FLOATS, second=False),
    "fmax": binary(np.fmax, FLOATS, second=False),
    "power": [
        *binary(np.power, FLOATS, domains={0: (0.3, 3.0), 1: (-2.0, 2.0)}, tolerance=8),
        Case(np.power, ((3, 5), (3, 5)), dtypes=INTS, integer_domains={0: (0, 5), 1: (0, 3)}, grad=False),
    ],
    "atan2": binary(np.arctan2, domain=(0.3, 3.0)),
    "hypot": binary(np.hypot, domain=(0.3, 3.0)),
    "copysign": binary(np.copysign, domain=(0.3, 3.0), second=False),
    "complex": binary(lambda a, b: a + 1j * b, ("float32",), grad=False),
    "equal": predicate(np.equal, (*NUMBERS, "bool", "complex64")),
    "not_equal": predicate(np.not_equal, (*NUMBERS, "bool", "complex64")),
    "less": predicate(np.less),
    "less_equal": predicate(np.less_equal),
    "greater": predicate(np.greater),
    "greater_equal": predicate(np.greater_equal),
    "logical_and": predicate(np.logical_and, BOOL),
    "logical_or": predicate(np.logical_or, BOOL),
    "logical_xor": predicate(np.logical_xor, BOOL),
    "logical_nand": predicate(lambda a, b: ~(a & b), BOOL),
    "logical_nor": predicate(lambda a, b: ~(a | b), BOOL),
    "logical_xnor": predicate(lambda a, b: ~(a ^ b), BOOL),
    "bitwise_and": predicate(np.bitwise_and, (*INTS, "bool")),
    "bitwise_or": predicate(np.bitwise_or, (*INTS, "bool")),
    "bitwise_xor": predicate(np.bitwise_xor, (*INTS, "bool")),
    "left_shift": predicate(np.left_shift, INTS, integer_domains={0: (0, 9), 1: (0, 7)}),
    "right_shift": predicate(np.right_shift, INTS, integer_domains={0: (0, 99), 1: (0, 7)}),
    # --- ternary
    "where": [Case(np.where, ((3, 5), (3, 5), (3, 5)), dtypes=(*NUMBERS, "bool", "complex64"), input_dtypes=("bool",),
                   elementwise=True),
              Case(np.where, ((3, 1), (5,), (2, 3, 5)), dtypes=("float32",), input_dtypes=("bool",))],
    "clamp": [Case(np.clip, ((3, 5), (1,), (5,)), dtypes=NUMBERS, domains={1: (-1.0, -0.9), 2: (0.9, 1.0)},
                   integer_domains={1: (2, 2), 2: (5, 5)}, second=False)],
    "fma": [Case(lambda a, b, c: a * b + c, ((3, 5), (3, 5), (5,)))],
    # --- conversion
    "cast": [Case(lambda x: x.astype(np.float64), attrs={"dtype": "float64"}, dtypes=(*NUMBERS, "bool"), grad=False),
             Case(lambda x: np.trunc(x).astype(np.int32), attrs={"dtype": "int32"}, dtypes=FLOATS, grad=False),
             Case(lambda x: x.astype(np.float32), attrs={"dtype": "float32"}, dtypes=("float64",), grad=False)],
    "real": [Case(np.real, dtypes=("complex64", "float32"), grad=False)],
    "imag": [Case(np.imag, dtypes=("complex64", "float32"), grad=False)],
    "conj": [Case(np.conj, dtypes=("complex64", "float32"), grad=False)],
    "absolute_square": [Case(lambda x: np.abs(x) ** 2, dtypes=("complex64", *REALS), grad=False)],
    "full_like": [Case(lambda x: np.full_like(x, 2.5), attrs={"value": 2.5}, grad=False)],
    "bitcast": [Case(lambda x: x.astype(np.float32).view(np.int32), attrs={"dtype": "int32"}, dtypes=("float32",), grad=False),
                Case(lambda x: x.astype(np.float32).view(np.uint8), attrs={"dtype": "uint8"}, dtypes=("float32",), grad=False)],
    "planar_from_complex": [Case(lambda x: np.concatenate([x.real, x.imag], -1), dtypes=COMPLEX, grad=False)],
    "complex_from_planar": [Case(lambda x: x[..., :3] + 1j * x[..., 3:], ((4, 6),), dtypes=("float32",), grad=False)],
    # --- activation
    "relu": unary(lambda x: np.maximum(x, 0), second=False),
    "leaky_relu": unary(lambda x: np.where(x >= 0, x, 0.2 * x), attrs={"alpha": 0.2}, second=False),
    "prelu": [Case(lambda x, a: np.where(x >= 0, x, a * x), ((3, 5), (5,)), second=False)],
    "hard_sigmoid": unary(_hard_sigmoid, (-2.5, 2.5), second=False),
    "sigmoid": unary(_sigmoid),
    "log_sigmoid": unary(special.log_expit),
    "softplus": unary(lambda x: np.logaddexp(0, x)),
    "silu": unary(lambda x: x * _sigmoid(x)),
    "elu": unary(lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)), attrs={"alpha": 0.7}, second=False),
    "gelu": [*unary(lambda x: 0.5 * x * special.erfc(-x / np.sqrt(2)), tolerance=6),
             *unary(_gelu_tanh, attrs={"approximate": "tanh"}, tolerance=8)],
    "softmax": [Case(lambda x: special.softmax(x, -1), ((4, 37),)),
                Case(lambda x: special.softmax(x, 0), ((37, 9),), attrs={"axis": 0}, dtypes=REALS)],
    "log_softmax": [Case(lambda x: special.log_softmax(x, -1), ((4, 37),)),
                    Case(lambda x: special.log_softmax(x, 1), ((3, 5, 7),), attrs={"axis": 1}, dtypes=REALS)],
    # --- loss
    "softmax_cross_entropy": [
        *[Case(lambda x, y, _r=r: _cross_entropy(x, y, reduction=_r), ((6, 10), (6, 10)), attrs={"reduction": r},
               domains={1: (0.05, 0.2)}, dtypes=FLOATS if r == "none" else REALS, tolerance=16)
          for r in ("none", "sum", "mean")],
        Case(lambda x, y: _cross_entropy(x, y, reduction="mean"), ((6, 10), (6,)), attrs={"reduction": "mean"},
             input_dtypes=(None, "int32"), integer_domains={1: (0, 9)}, tolerance=16),
        Case(lambda x, y: _cross_entropy(x, y, axis=1), ((2, 5, 3), (2, 3)), attrs={"axis": 1}, dtypes=REALS,
             input_dtypes=(None, "int64"), integer_domains={1: (0, 4)}, tolerance=16),
    ],
    "sigmoid_cross_entropy": [
        Case(lambda x, z: _sigmoid_cross_entropy(x, z), ((3, 5), (3, 5)), domains={1: (0.0, 1.0)}, tolerance=8),
        Case(lambda x, z: _sigmoid_cross_entropy(x, z).mean(), ((3, 5), (3, 5)), domains={1: (0.0, 1.0)},
             attrs={"reduction": "mean"}, dtypes=REALS, tolerance=16),
    ],
    "mean_squared_error": [Case(lambda a, b: ((a - b) ** 2).mean(), ((3, 5), (3, 5)), tolerance=16),
                           Case(lambda a, b: (a - b) ** 2, ((3, 5), (3, 5)), attrs={"reduction": "none"}, dtypes=REALS)],
    # --- reduction
    "sum": reduction(np.sum, (*NUMBERS, "complex64")),
    "product": reduction(np.prod, ("float32", "float64", "int32", "int64", "uint8"), domain=(0.8, 1.2)),
    "max": reduction(np.max, NUMBERS, second=False, distinct=True),
    "min": reduction(np.min, NUMBERS, second=False, distinct=True),
    "all": reduction(lambda x, **o: np.all(x, **o), BOOL, grad=False),
    "any": reduction(lambda x, **o: np.any(x, **o), BOOL, grad=False),
    "argmax": [Case(lambda x: x.argmax(-1), (SHAPE,), attrs={"axis": -1}, dtypes=NUMBERS, grad=False),
               Case(lambda x: x.argmax(0), ((37, 9),), attrs={"axis": 0}, dtypes=REALS, grad=False)],
    "argmin": [Case(lambda x: x.argmin(-1), (SHAPE,), attrs={"axis": -1}, dtypes=NUMBERS, grad=False),
               Case(lambda x: x.argmin(1), (SHAPE,), attrs={"axis": 1}, dtypes=REALS, grad=False)],
    "mean": reduction(np.mean, (*FLOATS, "complex64")),
    "variance": [*reduction(np.var, FLOATS, tolerance=32),
                 Case(lambda x: x.var(-1, ddof=1), (SHAPE,), attrs={"axis": -1, "ddof": 1}, dtypes=REALS, tolerance=32)],
    "logsumexp": reduction(lambda x, **o: special.logsumexp(x, **o), FLOATS),
    "l2_norm": reduction(lambda x, axis=None, keepdims=False: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)), FLOATS),
    # --- pooling
    **{name: rows for axes in (1, 2, 3) for name, rows in pooling(axes).items()},
    "max_pool4d": [Case(lambda x: pooled("max", 4, kernel=2, stride=1)(x)[0], ((2, 3, 2, 3, 4),), dtypes=REALS,
                        attrs={"kernel": 2, "stride": 1}, second=False, distinct=True)],
    "max_pool4d_with_indices": [Case(lambda x: pooled("max", 4, kernel=2, stride=1)(x)[:2], ((2, 3, 2, 3, 4),),
                                     dtypes=REALS, attrs={"kernel": 2, "stride": 1}, grad=False, distinct=True)],
    "avg_pool4d": [Case(pooled("avg", 4, kernel=2, stride=1, padding=1), ((2, 3, 2, 3, 4),), dtypes=REALS,
                        attrs={"kernel": 2, "stride": 1, "padding": 1})],
    "l2_pool4d": [Case(pooled("l2", 4, kernel=2, stride=1), ((2, 3, 2, 3, 4),), dtypes=REALS,
                       attrs={"kernel": 2, "stride": 1})],
    # --- movement
    "reshape": [Case(lambda x: x.reshape(5, 12), (SHAPE,), attrs={"shape": (5, -1)}, dtypes=(*NUMBERS, "bool", "complex64"))],
    "transpose": [Case(lambda x: x.transpose(2, 0, 1), (SHAPE,), attrs={"permutation": (2, 0, 1)}, dtypes=(*NUMBERS, "bool", "complex64")),
                  Case(np.transpose, (SHAPE,), dtypes=("float32",))],
    "swap_axes": [Case(lambda x: x.swapaxes(0, 2), (SHAPE,), attrs={"axis1": 0, "axis2": -1})],
    "squeeze": [Case(lambda x: x.squeeze(), ((1, 3, 1, 5),)), Case(lambda x: x.squeeze(2), ((1, 3, 1, 5),), attrs={"axis": 2})],
    "expand_dims": [Case(lambda x: np.expand_dims(x, (0, -1)), attrs={"axis": (0, -1)})],
    "flatten2d": [Case(lambda x: x.reshape(4, 15), (SHAPE,)), Case(lambda x: x.reshape(12, 5), (SHAPE,), attrs={"axis": 2})],
    "reverse": [Case(lambda x: x[::-1, :, ::-1], (SHAPE,), attrs={"axis": (0, 2)}, dtypes=NUMBERS), Case(lambda x: x[::-1, ::-1])],
    "roll": [Case(lambda x: np.roll(x, (2, -1), (0, 1)), attrs={"shifts": (2, -1), "axis": (0, 1)})],
    "broadcast_to": [Case(lambda x: np.broadcast_to(x, (4, 3, 5)), ((3, 1),), attrs={"shape": (4, 3, 5)}, dtypes=NUMBERS)],
    "broadcast_like": [Case(lambda x, y: np.broadcast_to(x, y.shape), ((3, 1), (4, 3, 5)), grad_inputs=(0,))],
    "sum_like": [Case(lambda x, y: x.sum(0).sum(-1, keepdims=True), ((4, 3, 5), (3, 1)), grad_inputs=(0,), tolerance=16)],
    "reshape_like": [Case(lambda x, y: x.reshape(y.shape), ((4, 3, 5), (6, 10)), grad_inputs=(0,))],
    "shape_of": [Case(lambda x: np.array(x.shape), (SHAPE,), grad=False)],
    # --- slicing
    "slice": [Case(lambda x: x[1:4:2, ::-1], ((5, 7),), attrs={"starts": (1, 2**63 - 1), "stops": (4, -(2**63)), "steps": (2, -1)},
                   dtypes=(*NUMBERS, "bool", "complex64")),
              Case(lambda x: x[:, -3:-1], ((5, 7),), attrs={"starts": (-3,), "stops": (-1,), "axis": (1,)})],
    "slice_update": [Case(_slice_update, ((5, 7), (2, 7)), attrs={"starts": (1, 2**63 - 1), "stops": (4, -(2**63)), "steps": (2, -1)})],
    "concat": [Case(lambda *x: np.concatenate(x, 1), ((3, 2), (3, 5), (3, 1)), attrs={"axis": 1}, dtypes=(*NUMBERS, "bool", "complex64"))],
    "split": [Case(lambda x: tuple(np.split(x, 3, 1)), ((4, 6),), attrs={"num_splits": 3, "axis": 1}),
              Case(lambda x: tuple(np.split(x, (2, 3), 0)), ((6, 2),), attrs={"sizes": (2, 1, 3)})],
    "interleave": [Case(lambda a, b: np.stack((a, b), -1).reshape(3, 10), ((3, 5), (3, 5)), attrs={"axis": 1}, dtypes=NUMBERS)],
    "stack": [Case(lambda *x: np.stack(x, 1), ((3, 5), (3, 5), (3, 5)), attrs={"axis": 1}, dtypes=NUMBERS)],
    "tile": [Case(lambda x: np.tile(x, (2, 3)), attrs={"multiples": (2, 3)}, dtypes=NUMBERS)],
    "pad": [Case(lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=1.5), attrs={"left": (1, 0), "right": (2, 3), "value": 1.5}),
            *[Case(_pad(numpy_mode), attrs={"left": (1, 0), "right": (2, 3), "mode": mode}, dtypes=("float32", "float64", "int32"))
              for mode, numpy_mode in (("reflect", "reflect"), ("symmetric", "symmetric"), ("edge", "edge"), ("wrap", "wrap"))]],
    # --- indexing
    "coordinates": [Case(lambda x: np.broadcast_to(np.arange(3)[:, None], (4, 3, 5)), (SHAPE,), attrs={"axis": 1}, grad=False)],
    "one_hot": [Case(lambda i: np.eye(6)[np.clip(i, 0, 5)], ((3, 4),), attrs={"depth": 6}, dtypes=("int32", "int64", "uint8"),
                     integer_domains={0: (0, 5)}, grad=False)],
    "band_part": [Case(lambda x: np.triu(np.tril(x, 2), -1), ((5, 6),), attrs={"num_lower": 1, "num_upper": 2})],
    "tril": [Case(lambda x: np.tril(x, 1), ((2, 4, 5),), attrs={"k": 1}, dtypes=NUMBERS)],
    "triu": [Case(lambda x: np.triu(x, -1), ((2, 4, 5),), attrs={"k": -1}, dtypes=NUMBERS)],
    # --- contraction
    "matmul": [Case(np.matmul, ((7, 19), (19, 33)), dtypes=(*FLOATS, "int32", "int64", "uint8", "complex64"), tolerance=64),
               Case(np.matmul, ((2, 1, 4, 6), (3, 6, 5)), dtypes=REALS, tolerance=32),
               Case(np.matmul, ((6,), (6, 5)), dtypes=REALS, tolerance=32), Case(np.matmul, ((4, 6), (6,)), dtypes=REALS, tolerance=32),
               Case(np.matmul, ((6,), (6,)), dtypes=REALS, tolerance=32)],
    # --- attention
    "scaled_dot_product_attention": [
        Case(attend, ((2, 4, 5, 6), (2, 2, 7, 6), (2, 2, 7, 3)), tolerance=16),
        Case(lambda q, k, v, m: attend(q, k, v, m, scale=0.3, causal=True), ((4, 6), (9, 6), (9, 5), (4, 9)),
             attrs={"scale": 0.3, "causal": True}, dtypes=REALS, tolerance=16),
        Case(attend, ((3, 5, 6), (1, 7, 6), (1, 7, 3), (3, 1, 7)), dtypes=REALS, input_dtypes=(None, None, None, "bool"), tolerance=16)],
    "scaled_dot_product_attention_with_sinks": [
        Case(attend_with_sinks, ((2, 4, 5, 6), (2, 2, 7, 6), (2, 2, 7, 3), (4,)), tolerance=16),
        Case(lambda *x: attend_with_sinks(*x, causal=True), ((2, 5, 6), (2, 7, 6), (2, 7, 3), (2,), (5, 7)), attrs={"causal": True},
             dtypes=REALS, tolerance=16)],
}  # fmt: skip

# Rows that build on this file.
import conv_cases  # noqa: E402
import gather_cases  # noqa: E402
import recurrent_cases  # noqa: E402
import sort_cases  # noqa: E402
import training_cases  # noqa: E402

CASES |= conv_cases.ROWS | gather_cases.ROWS | recurrent_cases.ROWS | sort_cases.ROWS | training_cases.ROWS
