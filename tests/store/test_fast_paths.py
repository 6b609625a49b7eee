"""Fast paths do what their general paths do: random histories run both ways, and replies and states are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from tests import inside

import tidelog
from tidelog import testing
from tidelog.store.commit.batch import _Batch
from tidelog.store.commit.blocked import Waits
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.core import Core

SEEDS = range(25)


class Told(Caller):
    """A parked call of a named consumer; its answer goes into a list."""

    def __init__(self, name: str, told: list[Any]) -> None:
        super().__init__()
        self._name, self._told = name, told

    def deliver(self, reply: Any, promise: Any) -> None:
        self._told.append((self._name, repr(reply)))
        self.done = True

    def nudge(self) -> None: ...


@contextmanager
def every_xadd_slow() -> Iterator[None]:
    def slow(core: Core, db: int, key: bytes, row: tuple[bytes, ...], flush: bool = True) -> Any:
        with core.lock:
            return core._add_slowly(db, key, row)

    with patch.object(Core, "add", slow):
        yield


@contextmanager
def every_xadd_words() -> Iterator[None]:
    with patch.object(_Batch, "_plain", _Batch._plain_as_words):
        yield


@contextmanager
def everyone_asked() -> Iterator[None]:
    with (
        patch.object(Waits, "_idle", lambda *_: 0),
        patch.object(Waits, "takers", lambda *_: None),
    ):
        yield


def row(random: Random) -> dict[str, str]:
    return {f"f{n}": "v" * random.randrange(120) for n in range(random.randrange(1, 4))}


def stir(db: tidelog.Store, random: Random, clock: testing.Clock) -> Any:
    """Something between the XADDs, that may be refused."""
    try:
        return something(db, random, clock)
    except tidelog.ResponseError as error:
        return str(error)


def something(db: tidelog.Store, random: Random, clock: testing.Clock) -> Any:
    match random.randrange(12):
        case 0:
            return db.delete(random.choice("st"))
        case 1:
            return db.set(random.choice("st"), "text", px=random.choice((None, 50)))
        case 2:
            return db.pexpire(random.choice("st"), 40)
        case 3:
            return clock.advance(random.choice((0.001, 0.06)))
        case 4:
            return db.xtrim("s", maxlen=random.randrange(5)) if db.type("s") == b"stream" else 0
        case 5:
            return db.config_set("stream-node-max-entries", random.choice((3, 100)))
        case 6 if db.type("s") == b"stream":
            return db.execute_command("XSETID", "s", "99999999999999-5")
    return None


def both_ways(slow: Any, script: Any) -> None:
    found = []
    for way in nullcontext, slow:
        clock = testing.Clock()
        with testing.store(clock=clock) as db, way():
            replies = list(script(db, clock))
            found.append((replies, db.digest(), db.info()["next_lsn"]))
    (fast, state, _), (general, same, _) = found
    assert fast == general
    assert state == same


@pytest.mark.parametrize("seed", SEEDS)
def test_plain_xadds(seed: int) -> None:
    def script(db: tidelog.Store, clock: testing.Clock) -> Iterator[Any]:
        random = Random(seed)
        told: list[Any] = []
        for number in range(60):
            if random.randrange(3) == 0:
                yield stir(db, random, clock)
            if random.randrange(10) == 0:
                inside.core(db).command(
                    0, b"XREAD BLOCK 0 STREAMS s t $ $".split(), lambda: Told(str(number), told)
                )
            try:
                yield db.xadd(random.choice("st"), row(random))
            except tidelog.ResponseError as error:
                yield str(error)
        yield told

    both_ways(every_xadd_slow, script)


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_pipelines_of_plain_xadds(seed: int, transaction: bool) -> None:
    def script(db: tidelog.Store, clock: testing.Clock) -> Iterator[Any]:
        random = Random(seed)
        for _ in range(6):
            yield stir(db, random, clock)
            with db.pipeline(transaction=transaction) as pipe:
                for _ in range(random.choice((1, 3, 20, 200))):
                    if random.randrange(8) == 0:
                        pipe.incr("n")
                    key = random.choice("st") if random.randrange(3) == 0 else "s"
                    pipe.xadd(key, row(random))
                yield list(map(str, pipe.execute(raise_on_error=False)))

    both_ways(every_xadd_words, script)


@pytest.mark.parametrize("seed", SEEDS)
def test_consumers_that_are_passed_over(seed: int) -> None:
    def script(db: tidelog.Store, clock: testing.Clock) -> Iterator[Any]:
        random = Random(seed)
        told: list[Any] = []
        db.xgroup_create("s", "g", mkstream=True)
        db.xgroup_create("s", "h")
        for number in range(40):
            match random.randrange(6):
                case 0 | 1 | 2:
                    group, name = random.choice("ggh"), f"c{random.randrange(6)}"
                    words = f"XREADGROUP GROUP {group} {name} COUNT 2 BLOCK 0 STREAMS s >"
                    inside.core(db).command(0, words.encode().split(), lambda: Told(name, told))
                case 3:
                    with db.pipeline(transaction=random.choice((False, True))) as pipe:
                        for _ in range(random.randrange(1, 5)):
                            pipe.xadd("s", {"n": number})
                        pipe.execute()
                case 4:
                    clock.advance(0.001)
                case 5:
                    db.xgroup_delconsumer("s", "g", f"c{random.randrange(6)}")
            yield list(told), len(inside.waiters(db))
        yield db.xpending("s", "g"), db.xpending("s", "h")
        yield db.xinfo_consumers("s", "g"), db.xinfo_consumers("s", "h")

    both_ways(everyone_asked, script)
