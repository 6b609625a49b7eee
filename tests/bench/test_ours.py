"""tidelog's side of the bench, and the baselines: they do the work that the figures claim."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bench.baselines.bare import LINE, Bare, Filled, Growing
from bench.baselines.sqlite_queue import SqliteQueue
from bench.messages import BATCH, DICTS, RANDOM, SMALL, TEXT, TINY
from bench.ours import DRAINED, QUEUE, Commands, Jobs
from bench.race import each
from bench.run import QUEUES, STORES, Run
from bench.wire import GROUP, STREAM, packed


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Jobs]:
    with closing(Jobs(str(tmp_path), "TINY", "no")) as made:
        yield made


def test_what_was_taken_is_acknowledged_and_gone(ours: Jobs) -> None:
    ours.add(3)
    ours.add_batches(247)
    assert ours.left() == 250
    ours.take(200, 100)
    ours.take(5, 1)
    assert ours.left() == len(ours.queues[QUEUE]) == 45
    assert ours.db.xpending(QUEUE, "workers")["pending"] == 0


def test_a_slice_that_finds_too_few_jobs_says_so(ours: Jobs) -> None:
    ours.add(3)
    with pytest.raises(RuntimeError, match="3 of 4"):
        ours.take(4, 1)


def test_slices_leave_a_queue_as_deep_as_they_found_it(ours: Jobs) -> None:
    ours.add_batches(30)
    ours.add_here(2 * DRAINED)
    ours.after_add_here(2 * DRAINED)
    ours.before_take(200, 100)
    ours.take(200, 100)
    assert ours.left() == 30
    ours.after_add_and_forget(0)
    assert ours.left() == 0


def test_delayed_jobs_become_due_and_priorities_are_given(tmp_path: Path) -> None:
    with closing(Jobs(str(tmp_path), "TEXT", "no", moved=True)) as ours:
        ours.add_batches(50, delay=3600)
        with pytest.raises(RuntimeError, match="0 of 50"):
            ours.take(50, 10)
        ours.before_take(20, 10, within=7200)
        ours.take(70, 10)
        ours.add(20, levels=10)
        ours.add_batches(20, levels=10)
        assert [job.priority for job in ours.queues[QUEUE].peek(40)].count(9) == 4
        ours.add_batches(10, keys=5)
        assert {job.key for job in ours.queues[QUEUE].peek(50)} >= {"customer-0", "customer-4"}


def test_the_bare_commands_leave_as_little(tmp_path: Path) -> None:
    with closing(Commands(str(tmp_path), "TINY", "no")) as bare:
        bare.add_many(210)
        bare.take(200, 100)
        bare.take(5, 1)
        assert bare.db.xlen(STREAM) == 5
        assert bare.db.xpending(STREAM, GROUP)["pending"] == 0
        bare.add_threads(16, 4)
        assert bare.db.xlen(STREAM) == 21


def test_values_go_through_the_codec(tmp_path: Path) -> None:
    with closing(Jobs(str(tmp_path), "DICTS", "no", "json")) as ours:
        ours.add_batches(2)
        assert ours.queues[QUEUE].get(block=0).value == DICTS.values[0]


def test_what_sqlite_took_is_gone(tmp_path: Path) -> None:
    with closing(SqliteQueue(str(tmp_path), "TEXT", durable=False)) as peer:
        peer.add_batches(250)
        peer.add(5)
        peer.take(200, 100)
        peer.take(5, 1)
        assert peer._db.execute("SELECT count(*) FROM queue").fetchone() == (50,)


def test_bare_calls_write_what_they_count(tmp_path: Path) -> None:
    file = tmp_path / "bare"
    with closing(Bare(str(tmp_path))) as bare:
        bare.before_add(10)
        bare.add(10)
        assert file.read_bytes() == LINE * 10
    with closing(Growing(str(tmp_path))) as bare:
        bare.add(3)
        assert file.read_bytes() == LINE * 3
    with closing(Filled(str(tmp_path))) as bare:
        bare.add(4)
        assert file.read_bytes().rstrip(b"\0") == LINE * 4


def test_messages_repeat_and_keep_their_size() -> None:
    assert len(SMALL.some(2_500)) == len(SMALL.some_blobs(2_500)) == 2_500
    assert {len(blob) for blob in RANDOM.blobs} == {len(blob) for blob in TEXT.blobs} == {100}
    assert {len(blob) for blob in TINY.blobs} == {16}
    (value,) = DICTS.some_values(1)
    assert DICTS.some_blobs(2_001)[2_000] == json.dumps(value).encode()
    assert packed("XADD", b"\r\n") == b"*2\r\n$4\r\nXADD\r\n$2\r\n\r\n\r\n"


def test_a_peer_that_is_missing_is_named(run: Run) -> None:
    with run.peers({"none": ("no_such_module", "None")}, "SMALL", durable=False) as peers:
        assert not peers
    assert "no_such_module" in run.missing["none"]


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(("kinds", "messages"), [(STORES, "SMALL"), (QUEUES, "TEXT")])
def test_every_peer_takes_part(
    run: Run, kinds: dict[str, tuple[str, str]], messages: str, durable: bool
) -> None:
    with run.peers(kinds, messages, durable=durable) as peers:
        names = {peer.name for peer in peers}
        slices: tuple[tuple[str, int, dict[str, Any]], ...] = (
            ("add", 1, {}),
            ("add_batches", BATCH, {}),
            ("take", 100, {"at_once": 100}),
            ("take", 10, {"at_once": 1}),
        )
        for method, quantum, options in slices:
            rates = run.race(each(peers, method, quantum=quantum, most=2_000, **options))
            assert set(rates) == names and all(rate.this > 0 for rate in rates.values())
    assert names == set(kinds) - ({"queuelib"} if durable else set())
    assert not run.missing
