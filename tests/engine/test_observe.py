"""The keys that effects signal and touch: the two tables of spec 10.2 and 15, row by row."""

from __future__ import annotations

import pytest

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.effects.observe import SIGNALS, TOUCHES, signals, touches
from tidelog.engine.keys.state import State

K, T = b"k", b"t"
EVERYTHING = [(db, key) for db in range(3) for key in (K, T, b"none")]
DATA = e.XADD, e.XADD_NODE, e.XADD_IDMP, e.XADD_MANY
# fmt: off
BOTH: list[tuple[Effect, list[tuple[int, bytes]]]] = [
    *(((op, 0, K, 1, 1), [(0, K)]) for op in DATA),
    ((e.DEL, 0, (K, T)),      [(0, K), (0, T)]),
    ((e.SET, 0, K, b"", -1),  [(0, K)]),
    ((e.RESTORE, 0, K, 0, b"", -1), [(0, K)]),
    ((e.RENAME, 0, K, T),     [(0, T), (0, K)]),
    ((e.COPY, 0, K, 1, T),    [(1, T)]),
    ((e.MOVE, 0, K, 2),       [(2, K), (0, K)]),
    ((e.SWAPDB, 0, 1),        [(0, K), (0, T), (1, K), (1, T)]),  # T exists in 1, K in 0
    ((e.FLUSHDB, 0),          [(0, K)]),
    ((e.FLUSHDB, 1),          [(1, T)]),
    ((e.FLUSHALL,),           [(0, K), (1, T)]),
]
ONLY_SIGNALS: list[Effect] = [(e.XGROUP_DESTROY, 0, K, b"g"), (e.XNACK, 0, K, b"g", b"", 1)]
ONLY_TOUCHES: list[Effect] = [
    (e.XTRIM, 0, K), (e.XDEL, 0, K), (e.XACKDEL, 0, K), (e.STREAM_CREATE, 0, K), (e.APPEND, 0, K, b""),
    (e.PEXPIREAT, 0, K, 1), (e.PERSIST, 0, K),
]
NEITHER = [
    e.EPOCH, e.XREOPEN, e.XSETID, e.XCFGSET, e.XIDMPRECORD, e.IDMP_DUPLICATE, e.XGROUP_CREATE, e.XGROUP_SETID,
    e.XGROUP_CREATECONSUMER, e.XGROUP_DELCONSUMER, e.DELIVER, e.XACK, e.SEEN,
]
# fmt: on


def some_state() -> State:
    state = State()
    state.databases[0].keys[K] = b""
    state.databases[1].keys[T] = b""
    return state


@pytest.mark.parametrize(("effect", "places"), BOTH)
def test_what_signals_and_touches(effect: Effect, places: list[tuple[int, bytes]]) -> None:
    for marked in (effect, (effect[0] | END, *effect[1:])):
        assert signals(marked, some_state(), EVERYTHING) == places
        assert touches(marked, some_state(), EVERYTHING) == places
        assert signals(marked, some_state(), []) == []
        assert touches(marked, some_state(), []) == []


@pytest.mark.parametrize("effect", ONLY_SIGNALS)
def test_what_only_signals(effect: Effect) -> None:
    assert signals(effect, some_state(), EVERYTHING) == [(0, K)]
    assert touches(effect, some_state(), EVERYTHING) == []


@pytest.mark.parametrize("effect", ONLY_TOUCHES)
def test_what_only_touches(effect: Effect) -> None:
    assert signals(effect, some_state(), EVERYTHING) == []
    assert touches(effect, some_state(), EVERYTHING) == [(0, K)]


def test_every_opcode_has_been_thought_of() -> None:
    opcodes = {
        value
        for name, value in vars(e).items()
        if isinstance(value, int) and name not in ("END", "OPCODE", "VOLATILE")
    }
    named = {effect[0] for effect, _ in BOTH}
    named |= {effect[0] for effect in (*ONLY_SIGNALS, *ONLY_TOUCHES)} | set(NEITHER)
    assert named == opcodes
    assert not set(NEITHER) & (SIGNALS.keys() | TOUCHES.keys())
