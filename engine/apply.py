"""Apply: the only code that changes state: live, in replay and on a follower. It cannot fail, but for an effect of a
kind that only a newer version knows.

`APPLY` is one list by opcode, each function twice: for the effect, and for the same effect as the last of its
unit (opcode | END). A hot path indexes it directly.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.engine import apply_groups, apply_keys, apply_streams
from tidelog.engine.effects import END, Effect
from tidelog.engine.errors import UnknownEffect
from tidelog.engine.state import State


def _unknown(state: State, effect: Effect) -> None:
    # Of a log that a newer version wrote: whoever reads it says where (aof.reader).
    raise UnknownEffect(effect[0])


APPLY: list[Callable[[State, Effect], None]] = [_unknown] * 128
for _table in (apply_streams.APPLY, apply_groups.APPLY, apply_keys.APPLY):
    for _opcode, _function in _table.items():
        assert APPLY[_opcode] is _unknown, f"opcode {_opcode} is applied twice"
        APPLY[_opcode] = APPLY[_opcode | END] = _function


def is_known(opcode: int) -> bool:
    """Whether this version can apply such an effect."""
    return 0 <= opcode < len(APPLY) and APPLY[opcode] is not _unknown


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
