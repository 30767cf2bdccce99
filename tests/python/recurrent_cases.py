"""Rows of op_cases.py: recurrent layers and their single steps.

test_recurrent.py goes through every option; these take the layers through dtypes, layouts and finite differences.
"""

from __future__ import annotations

from op_cases import REALS, Case
from recurrent_reference import case_reference, step_reference

ALL = ("input_weight", "bias", "initial_state")
TANH = {"activation": "tanh"}


def _layer(gates: int, directions: int, names: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    d = directions
    shapes = {
        "source": (4, 3, 5),
        "recurrent_weight": (gates * 2, 2) if d == 1 else (2, gates * 2, 2),
        "input_weight": (gates * 2 * d, 5),
        "bias": (gates * 2 * d,),
        "initial_state": (3, 2 * d),
        "initial_cell": (3, 2 * d),
    }
    return tuple(shapes[name] for name in ("source", "recurrent_weight", *names))


def _step(gates: int, states: int) -> tuple[tuple[int, ...], ...]:
    return ((3, 5), *((3, 2),) * states, (gates * 2, 2), (gates * 2, 5), (gates * 2,))


BOTH = {"bidirectional": True}
ROWS = {
    "rnn": [Case(case_reference("rnn", ALL, TANH), _layer(1, 1, ALL), attrs=TANH, dtypes=REALS, tolerance=64)],
    "lstm": [
        Case(
            case_reference("lstm", (*ALL, "initial_cell"), {}),
            _layer(4, 1, (*ALL, "initial_cell")),
            dtypes=REALS,
            tolerance=64,
        ),
        Case(case_reference("lstm", ALL, BOTH), _layer(4, 2, ALL), attrs=BOTH, dtypes=REALS, tolerance=64, grad=False),
    ],
    "gru": [Case(case_reference("gru", ALL, {}), _layer(3, 1, ALL), dtypes=REALS, tolerance=64)],
    "rnn_step": [Case(step_reference("rnn"), _step(1, 1), attrs=TANH, dtypes=REALS, tolerance=64)],
    "lstm_step": [Case(step_reference("lstm"), _step(4, 2), dtypes=REALS, tolerance=64)],
    "gru_step": [Case(step_reference("gru"), _step(3, 1), dtypes=REALS, tolerance=64)],
}
