"""Messages that go straight to consumers who wait for them: as if each had been decided again after each XADD."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests import inside
from tests.rounds import some_and_all
from tests.store.faults.traps import Boom, quick, raised, trap_at  # noqa: F401 - for every test here

import tidelog
from tidelog import testing
from tidelog.aof import frame
from tidelog.aof.errors import NoSpace
from tidelog.aof.log import Log
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import DELIVER, OPCODE, VOLATILE, XADD
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.waiting import Waiter
from tidelog.store.commit import batch
from tidelog.store.commit.blocked import Waits
from tidelog.store.commit.callers import Caller

READS = (
    "XREADGROUP GROUP g {0} COUNT 10 BLOCK 0 STREAMS s >",
    "XREADGROUP GROUP g {0} COUNT 10 BLOCK 0 STREAMS s >",
    "XREADGROUP GROUP g {0} COUNT 1 BLOCK 50 STREAMS s >",
    "XREADGROUP GROUP g {0} BLOCK 0 STREAMS s >",
    "XREADGROUP GROUP g {0} BLOCK 0 NOACK STREAMS s >",
    "XREADGROUP GROUP g {0} BLOCK 0 STREAMS s t > >",
    "XREADGROUP GROUP h {0} BLOCK 0 STREAMS s >",
    "XREADGROUP GROUP g {0} BLOCK 0 STREAMS t >",
    "XREAD BLOCK 0 STREAMS s $",
)
OTHERS = (
    "XACK s g {last}",
    "XDEL s {last}",
    "XTRIM s MAXLEN 1",
    "XADD s {ahead} f v",
    "XADD s MAXLEN 1 * f v",
    "XGROUP SETID s g 0",
    "XGROUP SETID s g 0 ENTRIESREAD 1",
    "XGROUP SETID s g 0 ENTRIESREAD 3",
    "XGROUP SETID s g $",
    "XGROUP SETID s g 99999999999999-0",
    "XGROUP DELCONSUMER s g a",
    "XGROUP DESTROY s g",
    "XGROUP CREATE s g $ MKSTREAM",
    "XGROUP CREATE s g $ ENTRIESREAD 2",
    "XSETID s {ahead} ENTRIESADDED 7",
    "XREADGROUP GROUP g b COUNT 1 STREAMS s >",
    "PEXPIRE s 1000",
    "DEL s",
)
# From here on the group knows how many messages it has read.
BEGIN = (
    "XGROUP CREATE s g $ MKSTREAM",
    "XGROUP CREATE s h $",
    "XGROUP CREATE t g $ MKSTREAM",
    "XADD s * f v",
    "XREADGROUP GROUP g a STREAMS s >",
)
consumers = st.sampled_from("abcd")
actions = st.one_of(
    st.tuples(st.just("wait"), consumers, st.sampled_from(READS)),
    st.tuples(st.just("wait"), consumers, st.sampled_from(READS[:3])),
    st.tuples(st.just("add"), st.integers(1, 6), st.sampled_from(("s", "s", "s", "t", "st"))),
    st.tuples(st.just("do"), st.sampled_from(OTHERS), st.just("")),
    st.tuples(st.just("leave"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("later"), st.sampled_from((0.001, 0.1, 1)), st.just("")),
)


class Told(Caller):
    """Notes who is answered, in the order that happens."""

    def __init__(self, name: str, told: list[Any]) -> None:
        super().__init__()
        self.name, self.told = name, told

    def nudge(self) -> None:
        self.told.append((self.name, self.error if self.answer is None else self.answer[0]))


def shown(told: list[Any]) -> list[Any]:
    """Answers as values that can be compared."""
    return [
        (name, [(k, list(e)) for k, e in reply] if isinstance(reply, list) else str(reply))
        for name, reply in told
    ]


def add(db: tidelog.Store, keys: list[bytes]) -> list[Any]:
    """One XADD to each; the IDs."""
    if len(keys) == 1:
        try:
            effect, _, _ = inside.core(db).add(0, keys[0], (b"f", b"v"))
        except CommandError as error:
            return [str(error)]
        return [b"%d-%d" % (effect[3], effect[4])]
    return [
        str(r)
        for r in batch.run_pipeline(inside.core(db), 0, [(key, (b"f", b"v")) for key in keys])[0]
    ]


def play(db: tidelog.Store, clock: testing.Clock, script: list[Any]) -> Iterator[Any]:
    """The state that is seen after each step."""
    own, last = inside.core(db), b"0-1"
    told: list[Any] = []
    for what, one, other in script:
        found: Any = None
        if what == "wait":
            name = f"{one}{len(told)}"
            args = other.format(one).encode().split()
            found = str(own.command(0, args, partial(Told, name, told))[0].__class__)
        elif what == "add":
            found = add(db, [b"%c" % other.encode()[i % len(other)] for i in range(one)])
        elif what == "do":
            words = one.format(last=last.decode(), ahead="99999999999998-5").encode().split()
            found = str(own.command(0, words)[0])
        elif what == "leave":
            waiters = own.waiting.waiters()
            if one < len(waiters):
                if other:
                    own.leave(waiters[one])
                else:
                    waiters[one].owner.gone = True  # it is on its way out
        else:
            clock.advance(one)
        stream = own.state.databases[0].keys.get(b"s")
        seen = []
        if stream is not None:
            last = b"%d-%d" % (stream.last_id >> 64, stream.last_id & (1 << 64) - 1)
            seen = [
                (group.name, group.last_id, group.entries_read)
                + tuple((c.name, c.seen_time, c.active_time) for c in group.listed())
                for group in stream.groups.values()
            ]
        waiting = [(each.owner.name, each.keys) for each in own.waiting.waiters()]
        assert not own.waiting.signalled
        yield found, shown(told), waiting, seen, digest(own.state)


@contextmanager
def nobody_known() -> Iterator[None]:
    """Whom an XADD serves is always found out by deciding."""
    with patch.object(Waits, "takers", lambda *_: None):
        yield


@settings(max_examples=50, deadline=None)
@given(st.lists(actions, max_size=25))
@example([("wait", "a", READS[0]), ("wait", "b", READS[4]), ("add", 3, "s")])
@example([("wait", "a", READS[0]), ("wait", "b", READS[0]), ("add", 5, "st"), ("add", 3, "t")])
@example([("wait", "a", READS[0]), ("wait", "b", READS[0]), ("leave", 0, False), ("add", 1, "s")])
@example([("do", "XGROUP SETID s g $", ""), ("wait", "a", READS[0]), ("add", 1, "s")])
def test_as_if_everyone_were_asked_after_each_message(script: list[Any]) -> None:
    as_if_asked(script)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(actions, max_size=25))
def test_as_if_asked_for_long(script: list[Any]) -> None:
    as_if_asked(script)


def as_if_asked(script: list[Any]) -> None:
    script = [("do", words, "") for words in BEGIN] + script
    clock, other_clock = testing.Clock(), testing.Clock()
    with testing.store(clock=clock) as db, testing.store(clock=other_clock) as plain:
        straight, asked = play(db, clock, script), play(plain, other_clock, script)
        for step in script:
            found = next(straight)
            with nobody_known():
                assert found == next(asked), step


def crowd(db: tidelog.Store, told: list[Any]) -> list[Waiter]:
    """Consumers who wait, after a first message that all of the group's counting begins with."""
    own = inside.core(db)
    for words in BEGIN:
        own.command(0, words.encode().split())
    return [
        own.command(0, READS[0].format(name).encode().split(), partial(Told, name, told))[0]
        for name in ("b", "c", "d")
    ]


@pytest.mark.parametrize("every", some_and_all(7, 1))
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
def test_whatever_breaks_nobody_is_lost_and_nothing_given_twice(
    tmp_path: Path, error: type[BaseException], count: int, every: int
) -> None:
    at, trapped = 0, True
    step = every if error is Boom else 3 * every  # the same lines
    while trapped:
        at += step
        path, told = tmp_path / str(at), list[Any]()
        with tidelog.open(path, fsync="no") as db:
            waiters = crowd(db, told)
            trap = trap_at(at, error)
            raised(trap, lambda db: add(db, [b"s"] * count), db)
            trapped = bool(trap.where)
            db.ping()  # rebuilds memory where it may be ahead of the log, and asks everyone again
            still = inside.waiters(db)
            for waiter in waiters:
                assert waiter.owner.done is (waiter not in still), trap.where
            assert len(told) == len(waiters) - len(still), trap.where
            given = [id for _, r in told if isinstance(r, list) for id in r[0][1].ids()]
            assert len(given) == len(set(given)), trap.where
            with tidelog.open(path, read_only=True) as copy:
                assert copy.digest() == db.digest(), trap.where
            for _ in still:
                db.xadd("s", {"f": "v"})
            assert all(waiter.owner.done for waiter in waiters), trap.where
    assert at > 60


@pytest.mark.parametrize("known", [True, False])
def test_a_disk_full_after_the_message(tmp_path: Path, known: bool) -> None:
    """The message is there, who should have got it is told why not, and when there is room again others get it."""
    told: list[Any] = []
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        crowd(db, told)
        full: list[bool] = []
        add, reserve = Log.add, Log.reserve

        def adding(log: Log, *args: Any) -> int:
            lsn = add(log, *args)
            log.room = -1  # it is asked for room next time
            full.append(True)
            return lsn

        def reserving(log: Log, nbytes: int) -> None:
            if full:
                raise NoSpace(Path("aof"), nbytes)
            reserve(log, nbytes)

        with (
            nullcontext() if known else nobody_known(),
            patch.object(Log, "add", adding),
            patch.object(Log, "reserve", reserving),
        ):
            db.xadd("s", {"f": "v"})
        assert [(name, type(error)) for name, error in told] == [
            (name, tidelog.OutOfSpace) for name in ("b", "c", "d")
        ]
        assert db.xlen("s") == 2 and db.xpending("s", "g")["pending"] == 1
        (((_, entries),)) = db.xreadgroup("g", "d", {"s": ">"})
        assert len(entries) == 1


def test_what_an_interrupt_left_is_served_beside(tmp_path: Path) -> None:
    """The next call asks the waiters that were due when an interrupt struck, also if it knows whom it serves."""
    told: list[Any] = []
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        crowd(db, told)
        for words in ("XADD t * f v", "XREADGROUP GROUP g a STREAMS t >"):
            inside.core(db).command(0, words.encode().split())
        inside.core(db).command(0, READS[7].format("e").encode().split(), partial(Told, "e", told))
        with (
            patch.object(inside.waiting(db).__class__, "visits", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            db.execute_command("XADD", "t", "NOMKSTREAM", "*", "f", "v")
        assert not told
        db.xadd("s", {"f": "v"})
        assert sorted(name for name, _ in told) == ["b", "e"]


def test_names_too_long_for_the_deliveries_to_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units that fit into a frame one by one are not refused because they do not fit together."""
    told: list[Any] = []
    monkeypatch.setattr(batch, "FRAME_BYTES", 10_000)
    monkeypatch.setattr(frame, "BODY_BYTES_MAX", 20_000)
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        crowd(db, told)
        for name in ("e" * 12_000, "f" * 12_000):
            args = READS[0].format(name).encode().split()
            inside.core(db).command(0, args, partial(Told, name[0], told))
        add(db, [b"s"] * 5)
    assert [name for name, reply in told if isinstance(reply, list)] == ["b", "c", "d", "e", "f"]


@pytest.mark.parametrize("count", [1, 3])
def test_who_watches_or_listens_is_told(count: int) -> None:
    told: list[Any] = []
    with testing.store() as db:
        crowd(db, told)
        with db.pipeline() as pipe:
            pipe.watch("s")
            add(db, [b"s"] * count)
            pipe.multi()
            pipe.xlen("s")
            with pytest.raises(tidelog.WatchError):
                pipe.execute()
    with testing.store() as db:
        crowd(db, told)
        heard: list[int] = []
        inside.landing(db).listener = lambda effect, *_: heard.append(effect[0] & OPCODE)
        add(db, [b"s"] * count)
        assert [opcode for opcode in heard if opcode < VOLATILE] == [XADD, DELIVER] * count
