"""Apply: the only code that changes state, live, in a replay and on a follower.

Live, it cannot fail, because decide and `prepare` have read everything that it needs. In a replay, it raises
UnknownEffect for an opcode that only a newer version knows, and CorruptBlock for rows of the checkpoint that cannot be
read.

`APPLY` is a list indexed by opcode. It has each function twice: for the effect, and for the effect as the last one of
its unit (opcode | END). Hot paths index it directly.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.engine.effects import apply_groups, apply_keys, apply_streams
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.errors import UnknownEffect
from tidelog.engine.keys.state import State


def _unknown(state: State, effect: Effect) -> None:
    # A newer version of tidelog wrote this log. aof.reading.reader adds the file and offset to the error.
    raise UnknownEffect(effect[0])


APPLY: list[Callable[[State, Effect], None]] = [_unknown] * 128
for _table in (apply_streams.APPLY, apply_groups.APPLY, apply_keys.APPLY):
    for _opcode, _function in _table.items():
        assert APPLY[_opcode] is _unknown, f"opcode {_opcode} is applied twice"
        APPLY[_opcode] = APPLY[_opcode | END] = _function


def is_known(opcode: int) -> bool:
    """Whether this version can apply an effect with this opcode, END included or not."""
    return 0 <= opcode < len(APPLY) and APPLY[opcode] is not _unknown


def apply(state: State, effect: Effect) -> None:
    """Apply one effect to the state. Trusts the effect: it comes from decide or from a checked log."""
    APPLY[effect[0]](state, effect)


def applier(state: State) -> Callable[[list[Effect]], None]:
    """A function that applies lists of records, for recovery."""
    table = APPLY

    def apply_all(records: list[Effect]) -> None:
        for record in records:
            table[record[0]](state, record)

    return apply_all
