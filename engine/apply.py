"""Apply: the only code that changes state: live, in replay and on a follower. It cannot fail.

`APPLY` is one list by opcode, each function twice: for the effect, and for the same effect as the last of its
unit (opcode | END). A hot path indexes it directly.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.engine import apply_groups, apply_keys, apply_streams
from tidelog.engine.effects import END, Effect
from tidelog.engine.state import State


def _unknown(state: State, effect: Effect) -> None:
    # Readers of logs refuse an unknown opcode by its format version before they come here.
    raise AssertionError(f"no such opcode: {effect[0]}")


APPLY: list[Callable[[State, Effect], None]] = [_unknown] * 128
for _table in (apply_streams.APPLY, apply_groups.APPLY, apply_keys.APPLY):
    for _opcode, _function in _table.items():
        assert APPLY[_opcode] is _unknown, f"opcode {_opcode} is applied twice"
        APPLY[_opcode] = APPLY[_opcode | END] = _function


def apply(state: State, effect: Effect) -> None:
    """Make one effect part of the state. It trusts the effect: decide, or a checked log, made it."""
    APPLY[effect[0]](state, effect)


def applier(state: State) -> Callable[[list[Effect]], None]:
    """What recovery feeds its records to."""
    table = APPLY

    def apply_all(records: list[Effect]) -> None:
        for record in records:
            table[record[0]](state, record)

    return apply_all
