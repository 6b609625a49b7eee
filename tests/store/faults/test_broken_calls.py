"""A call that breaks anywhere between decision and append: the caller is told the truth, memory and log agree.

An exception is raised at every line that the commit path executes, one run per line, by a trace function. `make test`
takes each eleventh line or fewer, however often it was run before; `make test-slow` takes each line when it is first
run; `make test-soak` takes each line each time. The lines of `with` and `try` themselves are left out: there an
interrupt cannot strike, since the interpreter only looks for one after calls and at jumps back (the lock is taken and
released in C).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.rounds import some_slow_and_soak
from tests.store.faults.traps import Boom, Call, quick, raised, trap_at  # noqa: F401, F811
from tests.traps import Trap

import tidelog
from tidelog.store.commit import batch, landing


def prepare(db: tidelog.Store) -> None:
    db.xgroup_create("s", "g", id="0", mkstream=True)
    for number in range(1, 6):
        db.xadd("s", {"n": number}, id=f"{number}-0")
    db.xreadgroup("g", "c", {"s": ">"}, count=3)
    db.set("k", "1")


def pipelined(db: tidelog.Store) -> Any:
    pipe = db.pipeline(transaction=False)
    pipe.xadd("s", {"n": 7}).xadd("s", {"n": 8}).xack("s", "g", "1-0").get("k").xadd("t", {"n": 9})
    return pipe.execute(raise_on_error=False)


def piled(db: tidelog.Store) -> Any:
    """More plain XADDs to one key than are logged one by one, and units around them."""
    pipe = db.pipeline(transaction=False).incr("k")
    for number in range(batch.MANY + 4):
        pipe.xadd("s", {"n": number})
    return pipe.xack("s", "g", "1-0").execute(raise_on_error=False)


def transacted(db: tidelog.Store) -> Any:
    return db.pipeline().xadd("s", {"n": 7}).xack("s", "g", "1-0").get("k").incr("k").execute()


CALLS: dict[str, Call] = {
    "xadd": lambda db: db.xadd("s", {"n": 6}),
    "xadd, general": lambda db: db.xadd("s", {"n": 6}, maxlen=3, approximate=False),
    "xadd_many": lambda db: db.xadd_many("s", [{"n": n} for n in range(25)]),
    "xreadgroup": lambda db: db.xreadgroup("g", "c2", {"s": ">"}, count=2),
    "xack": lambda db: db.xack("s", "g", "1-0", "2-0"),
    "set": lambda db: db.set("k", "2"),
    "pipeline": pipelined,
    "pipeline, many to a key": piled,
    "transaction": transacted,
}


def replayed(path: Path) -> str:
    with tidelog.open(path, read_only=True) as copy:
        return copy.digest()


def check(
    db: tidelog.Store, path: Path, before: str, told: BaseException | None, trap: Trap
) -> None:
    """Memory and log agree, and what the caller was told is so."""
    after = db.digest()
    assert after == replayed(path), trap.where
    # Boom itself comes through from decide and from after the append; it says nothing about either.
    nothing = isinstance(told, tidelog.NotStored)
    if isinstance(told, KeyboardInterrupt):
        nothing = any("the call stored nothing" in n for n in getattr(told, "__notes__", ()))
    if nothing:
        assert after == before, trap.where
    db.xadd("s", {"go": "on"})


class Places:
    """The lines to strike, one after the other.

    every   strike each so-manyth line that runs; 0: each line, when it is first run
    """

    def __init__(self, every: int, error: type[BaseException]) -> None:
        self.every, self.error = every, error
        self.at = self.struck = 0
        self.seen = set[str]()

    def next(self) -> Trap:
        self.at = self.at + self.every if self.every else 1
        return trap_at(self.at, self.error, self.seen)

    def more(self, trap: Trap) -> bool:
        """Whether the trap has struck, and so there may be more lines."""
        self.struck += bool(trap.where)
        if not self.every:
            self.seen.add(trap.where)
        return bool(trap.where)


@pytest.mark.parametrize("every", some_slow_and_soak(11, 0, 1))
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
def test_raising_at_every_line(
    name: str, error: type[BaseException], every: int, tmp_path: Path
) -> None:
    call = CALLS[name]
    reloads = 0
    # An interrupt leaves fewer ways to tell the truth.
    places = Places(every if error is Boom else 3 * every, error)
    trapped = True
    while trapped:
        # A new one now and then: rebuilding replays the whole log.
        path = tmp_path / str(places.struck)
        with tidelog.open(path, fsync="no") as db:
            db.config_set("stream-node-max-entries", 10)
            for _ in range(20):
                db.flushall()
                prepare(db)
                before = db.digest()
                trap = places.next()
                told = raised(trap, call, db)
                trapped = places.more(trap)
                if not trapped:
                    assert told is None
                    break
                check(db, path, before, told, trap)
                if name.startswith("pipeline"):
                    assert not isinstance(told, tidelog.TidelogError), trap.where
            reloads += inside.reloads(db)
            assert db.digest() == replayed(path)
    assert places.struck * max(places.every, 1) > 10
    assert reloads > (5 // every if every else 5)


@pytest.mark.parametrize("every", some_slow_and_soak(29, 0, 1))
@pytest.mark.parametrize("call", [pipelined, piled])
def test_a_pipeline_tells_what_is_stored_and_what_not(
    tmp_path: Path, call: Call, every: int
) -> None:
    """Each unit that is reported stored is there, each other one is not, wherever it broke."""
    places = Places(every, Boom)
    trapped = True
    while trapped:
        with tidelog.open(tmp_path / str(places.struck), fsync="no") as db:
            prepare(db)
            trap, results = places.next(), list[Any]()
            told = raised(trap, lambda db, into=results: into.extend(call(db)), db)  # type: ignore[misc]
            trapped = places.more(trap)
            ids = [id for id, _ in db.xrange("s", "6-0")] + [id for id, _ in db.xrange("t")]
            if told is None:
                stored = [r for r in results if isinstance(r, bytes) and b"-" in r]
                unknown = [r for r in results if isinstance(r, tidelog.OutcomeUnknown)]
                assert unknown or stored == ids, trap.where
            else:
                assert isinstance(told, Boom | tidelog.NotStored), trap.where


def test_waiters_survive_a_rebuilt_memory(tmp_path: Path) -> None:
    """A call breaks while it wakes a waiter: the waiter is served by the next one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool, tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xgroup_create("s", "g", mkstream=True)
        waiting = pool.submit(lambda: db.xreadgroup("g", "c", {"s": ">"}, block=60_000))
        while not inside.waiting(db).keys:
            pass
        real, inside.landing(db).log = inside.log(db), None  # type: ignore[assignment]
        with pytest.raises(AttributeError):
            db.xadd("s", {"a": 1})
        inside.landing(db).log = real
        inside.landing(db).trouble = landing.RELOAD
        db.xadd("s", {"a": 2})
        assert [f for _, f in waiting.result(60)[0][1]] == [{b"a": b"2"}]


def test_a_watched_key_counts_as_changed_by_a_rebuild(db: tidelog.Store) -> None:
    pipe = db.pipeline()
    pipe.watch("k")
    inside.landing(db).trouble = landing.RELOAD
    db.ping()
    pipe.multi()
    pipe.set("k", 1)
    with pytest.raises(tidelog.WatchError):
        pipe.execute()


def test_units_gathered_by_others_are_written_before_memory_is_rebuilt(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="always") as db:
        db.xadd("s", {"n": 1})
        log = inside.log(db)
        with log._mutex:  # as if a sync were in flight: units are gathered
            effect, _, _ = inside.core(db).add(0, b"s", (b"n", b"2"))
            assert log.written_lsn < log.next_lsn - 1
        inside.landing(db).trouble = landing.RELOAD
        assert db.xlen("s") == 2 and inside.reloads(db) == 1
        assert db.xrange("s")[1][0] == b"%d-%d" % (effect[3], effect[4])
