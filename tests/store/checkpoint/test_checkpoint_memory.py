"""`memory_budget` around a checkpoint: data leaves memory before it, memory is given back behind it; the looks."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import inside

import tidelog
from tidelog.engine.streams.stream import Stream
from tidelog.snapshot.checkpoint import write_checkpoint
from tidelog.store import checkpoints, residence

BUDGET = 1 << 20
OPTIONS: dict[str, Any] = {"fsync": "no", "checkpoint_bytes": 0, "save": ()}


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store that looks after itself only when it is woken."""
    monkeypatch.setattr(checkpoints, "LOOK_S", 3600.0)
    with tidelog.open(tmp_path / "s", **OPTIONS, memory_budget=BUDGET) as store:
        yield store


def add(db: tidelog.Store, nbytes: int) -> None:
    db.xadd_many("s", [{"pad": b"x" * 1000}] * (nbytes // 1000))


def stream(db: tidelog.Store) -> Stream:
    (found,) = dict.values(inside.databases(db)[0].keys)
    assert isinstance(found, Stream)
    return found


def test_what_is_stored_leaves_before_the_next_one(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking: Any = inside.checkpoints(db)
    looking._not_before = float("inf")  # until all is added
    add(db, 450_000)
    db.checkpoint()
    add(db, 700_000)  # over half the budget; with what is stored, over the whole
    assert residence.stream_bytes(stream(db)) > BUDGET
    seen: list[int] = []
    written = threading.Event()

    def write(*args: Any, **more: Any) -> None:
        seen.append(residence.stream_bytes(stream(db)))
        write_checkpoint(*args, **more)
        written.set()

    monkeypatch.setattr(checkpoints, "write_checkpoint", write)
    looking._not_before = looking._press_at = 0.0
    looking._wake.ring()
    assert written.wait(60)
    assert seen[0] < BUDGET
    assert db.xlen("s") == 1150 and len(db.xrange("s", count=10)) == 10


def test_nothing_leaves_while_a_checkpoint_is_written(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(db, 450_000)
    db.checkpoint()
    before = residence.stream_bytes(stream(db))
    seen: list[int] = []

    def write(*args: Any, **more: Any) -> None:
        residence.Residence(1).relieve(inside.core(db))
        seen.append(residence.stream_bytes(stream(db)))
        write_checkpoint(*args, **more)

    monkeypatch.setattr(checkpoints, "write_checkpoint", write)
    db.xadd("other", {"a": "b"})
    db.delete("other")
    db.checkpoint()
    assert seen == [before]
    residence.Residence(1).relieve(inside.core(db))
    assert dict.get(inside.databases(db)[0].keys, b"s") is None  # now it does
    assert db.xlen("s") == 450


def test_its_pages_are_given_back_before_writers_go_on(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(db, 1000)
    core, relief = inside.core(db), threading.Event()
    waited: list[bool] = []
    monkeypatch.setattr(
        checkpoints,
        "give_back",
        lambda: waited.append(core.durability.relief is relief and not relief.is_set()),
    )
    core.press(relief)
    db.checkpoint()
    assert waited == [True]
    assert relief.is_set() and core.durability.relief is None
    db.checkpoint()  # nobody waits
    assert waited == [True]


@pytest.mark.parametrize("words", ["flushall", "flushdb"])
def test_a_flush_of_many_keys_gives_memory_back(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """At the next look, and once more when a checkpoint has freed the names of the keys."""
    given: list[None] = []
    monkeypatch.setattr(checkpoints, "FLUSHED_KEYS", 3)
    monkeypatch.setattr(checkpoints, "give_back", lambda: given.append(None))
    looking: Any = inside.checkpoints(db)

    def flush(count: int) -> int:
        given.clear()
        inside.core(db).state.changes.flushed = 0
        for number in range(count):
            db.set(f"k{number}", "v")
        getattr(db, words)()
        for _ in range(2):
            looking._look(inside.core(db))
        return len(given)

    assert flush(2) == 0
    assert flush(3) == 1
    for _ in range(2):
        db.set("k", "v")
        db.checkpoint()
        assert len(given) == 2


def test_a_look_passes_empty_databases_over_and_counts_its_work_alone(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(db, 1000)
    rests: list[float] = []
    work = iter((5.0, 5.25))
    clock = SimpleNamespace(
        monotonic=lambda: 1000.0,
        perf_counter=lambda: 0.0,
        thread_time=lambda: next(work),
        sleep=rests.append,
    )
    monkeypatch.setattr(residence, "time", clock)
    looked = residence.Residence(BUDGET)
    looked.relieve(inside.core(db))
    assert looked.bytes > 1000
    assert len(inside.databases(db)) > len(rests) == 1
    assert looked.next_survey == 1000.0 + 20 * 0.25
