"""A quota on disk: what only adds data is refused at it, all else goes on, and room that is made is used again."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.until import until

import tidelog
from tidelog import testing
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.engine.api import APPLY, DELIVER, OPCODE, TABLE, Effect
from tidelog.engine.effects import effect as opcodes
from tidelog.store.commit.adding import ADDS, BY_NAME, SETTLES, only_adds

MIB = 1 << 20
QUOTA = 2 * MIB
OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0, "maxdisk": QUOTA}
BIG = b"x" * 60_000
# Commands that Redis refuses when it has no memory. These add next to nothing, or only numbers.
SMALL = {b"xgroup|create", b"xgroup|createconsumer", b"xsetid", b"xidmprecord"}

Db = tidelog.Store[Any]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    with tidelog.open(tmp_path / "s", **OPTIONS) as store:
        yield store


def fill(db: Db) -> None:
    """Have more data in the checkpoint than the quota, so that no checkpoint makes room."""
    checkpoints = inside.checkpoints(db)
    checkpoints.change(checkpoints.options._replace(maxdisk=None))
    for _ in range(1 + QUOTA // len(BIG)):
        db.xadd("filling", {"raw": BIG})
    db.checkpoint()
    checkpoints.change(checkpoints.options._replace(maxdisk=QUOTA))


def refuses(db: Db) -> bool:
    """Whether a small write is refused; it adds nothing that is left."""
    try:
        db.set("probe", b"1")
    except tidelog.StoreFull:
        return True
    db.delete("probe")
    return False


def accepted(db: Db) -> None:
    """Wait until the store takes data again, as it does by itself."""
    until(lambda: not refuses(db))


def test_it_says_what_it_has_and_what_to_do(db: Db) -> None:
    fill(db)
    with pytest.raises(tidelog.StoreFull) as told:
        db.set("a", BIG)
    text = str(told.value)
    assert re.match(r"the store is full: it has \d,\d{3},\d{3} bytes on disk \(log \d", text)
    assert "maxdisk, is 2,097,152. The call stored nothing." in text
    assert "trim, delete, purge, or lower keep_snapshots. Or raise maxdisk" in text
    info = db.info()
    assert info["maxdisk"] == QUOTA and info["disk_full"] is True
    assert QUOTA < info["disk_bytes"] < 4 * QUOTA
    assert isinstance(told.value, tidelog.OutOfSpace)
    assert db.get("a") is None


ADDING: dict[str, Callable[[Db], object]] = {
    "xadd": lambda db: db.xadd("s", {"a": 1}),
    "xadd with a trim that trims nothing": lambda db: db.xadd("s", {"a": 1}, maxlen=10**6),
    "xadd_many": lambda db: db.xadd_many("s", [{"a": n} for n in range(1000)]),
    "set": lambda db: db.set("k", 1),
    "incr": lambda db: db.incr("k"),
    "append": lambda db: db.append("k", b"x"),
    "copy": lambda db: db.copy("old", "new"),
    "restore": lambda db: db.restore("new", 0, db.dump("old") or b""),
    "a transaction": lambda db: _transaction(db, lambda pipe: pipe.xadd("s", {"a": 1}).set("k", 2)),
    "a pipeline": lambda db: _pipeline(db, lambda pipe: pipe.xadd("s", {"a": 1})),
    "a long pipeline": lambda db: _pipeline(
        db, lambda pipe: [pipe.xadd("s", {"a": n}) for n in range(500)]
    ),
    "put": lambda db: db.queue("q").put("job"),
    "put_many": lambda db: db.queue("q").put_many(range(10)),
    "a delayed put": lambda db: db.queue("q").put("job", delay=60),
    "delayed puts": lambda db: db.queue("q").put_many(range(10), delay=60),
    "a put with a priority": lambda db: db.queue("q").put("job", priority=2),
    "a put with a dedup ID": lambda db: db.queue("q").put("job", dedup_id="one"),
    "a schedule": lambda db: db.schedule("each", queue="q", value="tick", every=timedelta(hours=1)),
}


def _transaction(db: Db, add: Callable[[Any], object]) -> None:
    with db.pipeline(transaction=True) as pipe:
        add(pipe)
        pipe.execute()


def _pipeline(db: Db, add: Callable[[Any], object]) -> None:
    with db.pipeline(transaction=False) as pipe:
        add(pipe)
        pipe.execute()


@pytest.mark.parametrize("what", ADDING)
def test_what_adds_data_is_refused(db: Db, what: str) -> None:
    db.set("old", b"x" * 100)
    fill(db)
    before, reloads = db.digest(), inside.reloads(db)
    with pytest.raises(tidelog.StoreFull):
        ADDING[what](db)
    if "put" not in what and what != "a schedule":  # these may create their empty streams first
        assert db.digest() == before
    assert not db.xlen("s") and not db.xlen("q") and inside.reloads(db) == reloads


def test_what_makes_room_or_settles_goes_on(db: Db) -> None:
    queue = db.queue("q", max_deliveries=2)
    queue.put_many(range(8))
    for n in range(100):
        db.xadd("s", {"n": n})
    db.xgroup_create("s", "g", id="0")
    fill(db)
    assert refuses(db)
    consumer = queue.consume(block=0)
    with next(consumer):  # taken and done
        pass
    assert next(consumer).nack("later")  # a failure, and a hold
    assert next(consumer).fail("never")  # a dead job
    job = next(consumer)
    assert job.extend(60) and job.ack("a result")
    assert next(consumer).release()
    assert next(consumer).done_and(queue.new("a following job"))
    assert len(db.xreadgroup("g", "c", {"s": ">"}, count=10)[0][1]) == 10
    assert db.xack("s", "g", "0-1") == 0
    _transaction(db, lambda pipe: pipe.xtrim("s", maxlen=50, approximate=False).xadd("s", {"n": 0}))
    assert db.xlen("s") == 51
    db.xadd("s", {"n": 1}, maxlen=20, approximate=False)  # trims more than it adds
    assert db.xlen("s") == 20
    assert queue.dead.redrive() == 1
    db.expire("s", 1000)
    assert db.delete("s") == 1
    assert refuses(db)  # all of that was less than is missing
    assert db.verify() == []


def test_what_is_due_comes_to_workers_who_wait(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.open(tmp_path / "s", **OPTIONS, clock=clock) as db:
        queue = db.queue("q")
        queue.put("lost")
        queue.get("a worker who dies", block=0)
        queue.put("delayed", delay=60)
        queue.put("delayed and urgent", delay=60, priority=5)
        db.schedule("each", queue="q", value="a tick", every=60)
        fill(db)
        clock.advance(61)
        jobs = [queue.get(block=0) for _ in range(4)]
        values = [job.value for job in jobs if job]
        assert sorted(values) == ["a tick", "delayed", "delayed and urgent", "lost"]
        assert refuses(db)


def test_room_that_is_made_is_used_again(db: Db) -> None:
    fill(db)
    assert refuses(db)
    db.xtrim("filling", maxlen=5, approximate=False)
    accepted(db)  # a checkpoint is made for that, and the log released
    assert db.info()["disk_bytes"] < QUOTA // 2
    for _ in range(5):
        db.xadd("filling", {"raw": BIG})
    fill(db)
    assert db.verify() == []


def test_a_job_that_is_done_makes_room(db: Db) -> None:
    queue = db.queue("q", codec="bytes")
    with pytest.raises(tidelog.StoreFull):
        while True:
            queue.put(BIG)
    done = 0
    for job in queue.consume(block=0):
        with job:
            done += 1
    assert done > 10
    until(lambda: _passes(lambda: queue.put(BIG)))


def _passes(call: Callable[[], object]) -> bool:
    try:
        call()
    except tidelog.StoreFull:
        return False
    return True


def test_a_log_that_is_folded_alone_refuses_nothing(tmp_path: Path) -> None:
    """The same small key again and again: only the log grows, and the store releases it in time."""
    with tidelog.open(tmp_path / "s", **OPTIONS, retain_bytes=64 * MIB) as db:
        for _ in range(50):
            until(lambda: _passes(lambda: db.set("a", BIG)))
        assert db.info()["disk_bytes"] <= QUOTA + MIB
        assert min(int(path.stem) for path in (tmp_path / "s" / "aof").glob("*.aof")) > 1


def test_over_a_restart(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        fill(db)
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        assert refuses(db)
        db.xtrim("filling", maxlen=1, approximate=False)
        accepted(db)
        fill(db)
    with tidelog.open(tmp_path / "s", **{**OPTIONS, "maxdisk": None}) as db:  # it is not stored
        for _ in range(20):
            db.xadd("filling", {"raw": BIG})
        assert db.info()["maxdisk"] is None and db.info()["disk_full"] is False
        assert db.info()["disk_bytes"] > QUOTA
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        with pytest.raises(tidelog.StoreFull):
            db.set("a", b"1")
        assert db.xlen("filling") > 20


def test_after_memory_was_rebuilt(db: Db) -> None:
    fill(db)
    with inside.lock(db):
        inside.core(db).doubt()
    assert refuses(db)


def test_fewer_snapshots_make_room(db: Db, tmp_path: Path) -> None:
    for n in range(10):
        db.xadd("s", {"raw": BIG, "n": n})
    made = [db.snapshot()]
    while not refuses(db):
        db.xadd("s", {"n": len(made)})
        made.append(db.snapshot())
    assert len(made) > 1
    for snapshot in made[:-1]:  # as another process would
        recipe.remove_tree(RealDisk(), snapshot.path)
    accepted(db)


def test_room_is_found_even_if_nothing_was_written_since_the_open(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **{**OPTIONS, "maxdisk": None}) as db:
        db.xadd_many("s", [{"raw": BIG}] * 20)
        made = db.snapshot()
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        put = partial(_transaction, db, lambda pipe: pipe.xadd("s", {"a": 1}).set("k", 2))
        with pytest.raises(tidelog.StoreFull):
            put()
        recipe.remove_tree(RealDisk(), made.path)  # as another process would
        until(lambda: _passes(put))


def test_no_automatic_snapshot_at_the_quota(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS, snapshot_every=0.2) as db:
        db.set("a", b"1")
        folder = tmp_path / "s" / "snapshots"
        until(folder.exists)
        fill(db)
        until(lambda: "no automatic snapshot is made" in caplog.text)
        assert sum(path.is_dir() for path in folder.iterdir()) > 0


def test_a_thread_that_waits_for_an_entry_gets_it(db: Db) -> None:
    db.xgroup_create("s", "g", mkstream=True)
    fill(db)
    got: list[Any] = []
    reader = threading.Thread(
        target=lambda: got.extend(db.xreadgroup("g", "c", {"s": ">"}, block=0))
    )
    reader.start()
    until(lambda: inside.waiting(db).keys)
    db.xtrim("filling", maxlen=1, approximate=False)
    accepted(db)
    db.xadd("s", {"a": 1})
    reader.join()
    assert got


def test_each_command_that_redis_refuses_without_memory_is_known() -> None:
    named = {name for name, each in TABLE.commands.items() if "denyoom" in each.flags}
    added = {name for name, opcode in BY_NAME.items() if opcode in ADDS}
    assert {name for name in named if name not in SMALL} == added
    assert all(name in TABLE.commands for name in BY_NAME)
    assert not ADDS & SETTLES and {op & OPCODE for op in (*ADDS, *SETTLES)} <= set(
        range(len(APPLY))
    )


@pytest.mark.parametrize(
    ("effects", "adds"),
    [
        ([], False),
        ([(opcodes.XADD, 0, b"s")], True),
        ([(opcodes.SET | opcodes.END, 0, b"k")], True),
        ([(opcodes.SET, 0, b"tidelog:once:lane")], False),
        ([(opcodes.XADD, 0, b"later"), (DELIVER, 0, b"later")], True),
        ([(opcodes.XADD, 0, b"failures"), (DELIVER, 0, b"q")], False),
        ([(opcodes.XADD, 1, b"q"), (DELIVER, 0, b"q")], False),
        ([(opcodes.XADD, 0, b"dead"), (opcodes.XACKDEL, 0, b"q")], False),
        ([(DELIVER, 0, b"q")], False),
    ],
)
def test_which_units_only_add(effects: list[Effect], adds: bool) -> None:
    assert only_adds(effects) is adds


@pytest.mark.parametrize("fsync", ["no", "always"])
def test_no_call_passes_the_quota(tmp_path: Path, fsync: str) -> None:
    with tidelog.open(tmp_path / "s", **{**OPTIONS, "fsync": fsync}) as db:
        threads = [threading.Thread(target=_put_until_full, args=(db,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert inside.log(db).frames_bytes <= QUOTA


def _put_until_full(db: Db) -> None:
    with pytest.raises(tidelog.StoreFull):
        while True:
            db.xadd("s", {"raw": BIG})
