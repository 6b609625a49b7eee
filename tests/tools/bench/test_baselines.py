"""Each baseline really stores and hands out what it is asked to, or its figure means nothing."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidelog.tools.bench.baselines.bare import LINE, Bare
from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.messages import BATCH, RANDOM, SMALL


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, rounds=2, slice_s=0.002, quick=True) as run:
        yield run


@pytest.mark.parametrize("durable", [False, True])
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
    assert {len(blob) for blob in RANDOM.blobs} == {100}
