"""Each baseline really stores and hands out what it is asked to, or its figure means nothing."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.rounds import rest_slow

from tidelog.tools.bench.baselines.bare import LINE, Bare
from tidelog.tools.bench.baselines.huey_queue import HueyQueue
from tidelog.tools.bench.baselines.lite_queue import LiteQueuePeer
from tidelog.tools.bench.baselines.queuelib_queue import QueuelibQueue
from tidelog.tools.bench.bench import QUEUES, Bench
from tidelog.tools.bench.messages import BATCH, DICTS, RANDOM, SMALL, TEXT, TINY

NORMAL, FULL = 1, 2  # of SQLite's PRAGMA synchronous


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, rounds=2, slice_s=0.002, quick=True) as run:
        yield run


@pytest.mark.parametrize("durable", rest_slow([False, True], 1))
def test_every_peer_takes_part_in_every_race(bench: Bench, durable: bool) -> None:
    with bench.peers(SMALL, durable=durable) as peers:
        names = {peer.name for peer in peers}
        for sides in (
            [peer.adding() for peer in peers],
            [peer.adding_batches() for peer in peers],
            [peer.taking(100) for peer in peers],
            [peer.taking(1) for peer in peers],
        ):
            rates = bench.race(sides)
            assert set(rates) == names
            assert all(rate > 0 for rate in rates.values())
    assert names >= {"redis-py", "sqlite3", "lmdb", "persist-queue"}
    assert not bench.missing


@pytest.mark.parametrize("durable", rest_slow([False, True], 1))
def test_every_queue_takes_part_in_every_race(bench: Bench, durable: bool) -> None:
    with bench.queues(TEXT, durable=durable) as queues:
        for sides in (
            [queue.adding() for queue in queues],
            [queue.adding_batches() for queue in queues],
            [queue.taking(100) for queue in queues],
            [queue.taking(1) for queue in queues],
        ):
            rates = bench.race(sides)
            assert set(rates) == set(QUEUES)
            assert all(rate > 0 for rate in rates.values())
    assert not bench.missing


def test_what_litequeue_took_is_done(tmp_path: Path) -> None:
    with closing(LiteQueuePeer(tmp_path, TEXT, durable=True)) as peer:
        peer.add_batches(250)
        peer.add(5)
        assert peer._queue.qsize() == 255
        peer.take(200, 100)
        peer.take(5, 1)
        assert peer._queue.qsize() == 50
        assert not list(peer._queue.list_locked(-1000))
        assert peer._queue.conn.execute("PRAGMA synchronous").fetchone()[0] == FULL
    with closing(LiteQueuePeer(tmp_path, TEXT, durable=False)) as peer:
        assert peer._queue.conn.execute("PRAGMA synchronous").fetchone()[0] == NORMAL
        assert peer._queue.pop().data == TEXT.blobs[205].decode()


def test_what_huey_took_is_gone(tmp_path: Path) -> None:
    with closing(HueyQueue(tmp_path, TEXT, durable=True)) as peer:
        peer.add_batches(20)
        peer.take(15, 5)
        assert peer._storage.queue_size() == 5
        assert peer._storage.conn.execute("PRAGMA synchronous").fetchone()[0] == FULL
    with closing(HueyQueue(tmp_path, TEXT, durable=False)) as peer:
        assert peer._storage.conn.execute("PRAGMA synchronous").fetchone()[0] == NORMAL
        assert bytes(peer._storage.dequeue()) == TEXT.blobs[15]


def test_what_the_redis_queue_took_is_deleted(bench: Bench) -> None:
    with bench.queues(TEXT, durable=False) as queues:
        (peer,) = [queue for queue in queues if queue.name == "redis-py"]
        peer.add_batches(BATCH)
        peer.take(200, 100)
        peer.take(5, 1)
        client = bench.redis_server("everysec").client
        assert client.xlen("orders") == BATCH - 205
        assert client.xpending("orders", "billing")["pending"] == 0


def test_queuelib_refuses_to_promise_syncs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot sync"):
        QueuelibQueue(tmp_path, SMALL, durable=True)


def test_what_redis_took_is_acknowledged(bench: Bench) -> None:
    peer = bench.redis(SMALL, durable=True)
    peer.add_batches(BATCH)
    peer.add(5)
    peer.take(1_000, 100)
    client = bench.redis_server("always").client
    assert client.xlen("orders") == BATCH + 5
    assert client.xpending("orders", "billing")["pending"] == 0
    assert client.config_get("appendfsync") == {"appendfsync": "always"}
    peer.close()


def test_bare_calls_write_what_they_count(tmp_path: Path) -> None:
    with closing(Bare(tmp_path)) as bare:
        bare.writing().slice(10)
        assert (tmp_path / "growing").read_bytes() == LINE * 10
        bare.syncing_growing().slice(3)
        assert (tmp_path / "growing").read_bytes() == LINE * 3
        bare.syncing_filled().slice(4)
        assert (tmp_path / "filled").read_bytes().rstrip(b"\0") == LINE * 4


def test_messages_repeat_and_keep_their_size() -> None:
    assert len(SMALL.some(2_500)) == len(SMALL.some_blobs(2_500)) == 2_500
    assert {len(blob) for blob in RANDOM.blobs} == {len(blob) for blob in TEXT.blobs} == {100}
    assert {len(blob) for blob in TINY.blobs} == {16}
    assert all(blob.decode().isascii() for blob in TEXT.blobs)


def test_dicts_are_encoded_whenever_they_are_asked_for() -> None:
    (value,) = DICTS.some_values(1)
    assert DICTS.some_blobs(2_001)[2_000] == json.dumps(value).encode()
    assert DICTS.some(1) == [{"value": json.dumps(value).encode()}]
    assert len(DICTS.some(1_500)) == len(DICTS.some_values(1_500)) == 1_500
    assert TEXT.some_values(3) == TEXT.some_blobs(3) == TEXT.blobs[:3]
