"""The queue's side of the bench: it does the work its figures claim. How fast is for the bench to say."""

import gc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidelog.tools.bench.bench import QUEUES, Bench
from tidelog.tools.bench.contenders.our_queue import DRAINED, QUEUE, Commands, TidelogQueue
from tidelog.tools.bench.contenders.ours import GROUP, STREAM
from tidelog.tools.bench.figure import Figure
from tidelog.tools.bench.messages import DICTS, TINY
from tidelog.tools.bench.processes import child
from tidelog.tools.bench.subjects import queue as subject


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as run:
        yield run


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[TidelogQueue]:
    with closing(TidelogQueue(tmp_path, TINY, fsync="everysec")) as made:
        yield made


def next_value(ours: TidelogQueue) -> object:
    job = ours.queue.get(block=0)
    assert job is not None
    return job.value


def test_what_was_taken_is_acknowledged_and_gone(ours: TidelogQueue) -> None:
    ours.add(3)
    ours.add_batches(247)
    assert ours.db.xlen(QUEUE) == 250
    ours.take(200, 100)
    ours.take(5, 1)
    assert ours.db.xlen(QUEUE) == len(ours.queue) == 45
    assert ours.db.xpending(QUEUE, "workers")["pending"] == 0
    assert next_value(ours) == TINY.blobs[205 - 3]


def test_a_slice_that_finds_too_few_jobs_says_so(ours: TidelogQueue) -> None:
    ours.add(3)
    with pytest.raises(RuntimeError, match="3 of 4"):
        ours.take(4, 1)


def test_slices_leave_a_queue_as_deep_as_they_found_it(ours: TidelogQueue) -> None:
    ours.add_batches(30)
    for contender in (ours.adding_at_depth(), ours.taking(1), ours.taking(100)):
        contender.slice(2 * DRAINED)
        assert ours.db.xlen(QUEUE) == 30


def test_the_bare_commands_leave_as_little(tmp_path: Path) -> None:
    with closing(Commands(tmp_path, TINY, fsync="no", name="bare")) as bare:
        bare.add_many(210)
        bare.take(200, 100)
        bare.take(5, 1)
        assert bare.db.xlen(STREAM) == 5
        assert bare.db.xpending(STREAM, GROUP)["pending"] == 0


def test_values_go_through_the_codec(tmp_path: Path) -> None:
    with closing(TidelogQueue(tmp_path, DICTS, fsync="no", codec="json")) as ours:
        ours.add_batches(2)
        assert next_value(ours) == DICTS.values[0]


def test_every_row_of_the_subject_is_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "MANY", 25_000)  # a fifth of it, as the run is a quick one
    monkeypatch.setattr(subject, "WORKED_OFF", 10_000)
    rows = {row.name.removeprefix("queue: "): row for row in subject.rows(bench)}
    assert len(rows) == 13
    for row in rows.values():
        assert row.target or row.note or row.baselines
        if row.unit == "/s":
            assert row.measured > 0 and all(rate > 0 for rate in row.baselines.values())
    for name, bare in (
        ("put one, everysec", "bare XADD"),
        ("put_many, json, everysec", "bare xadd_many"),
        ("consume and ack by 100, always", "bare commands"),
    ):
        assert set(rows[name].baselines) == {bare, *QUEUES}
    assert rows["put one, 5,000 waiting"].against == "1,000 waiting"
    assert rows["XLEN after 2,000 jobs put and worked off"].met
    assert rows["the engine's state after 2,000 jobs put and worked off"].met
    assert (
        "before malloc_trim"
        in rows["growth of memory after 2,000 jobs put and worked off"].baselines
    )
    assert not bench.missing


def test_bytes_are_counted_once_and_code_is_left_out() -> None:
    big = bytes(10_000)
    once = child.deep_bytes([big])
    assert 10_000 < once < 10_500
    assert child.deep_bytes([big, big, [big]]) < once + 200
    assert child.deep_bytes([Figure, gc, child.deep_bytes]) < 200
    assert child.deep_bytes({"a": [big]}) > 10_000
