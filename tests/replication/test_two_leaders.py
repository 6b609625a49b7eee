"""Two leaders for a while: what the losing side took is given up, confirmed or not, and kept in quarantine/."""

from __future__ import annotations

import json
from pathlib import Path

from tests.replication.conftest import Pair
from tests.until import until

import tidelog
from tidelog.aof.identity import QUARANTINE
from tidelog.aof.surplus import REPORT


def test_what_the_losing_side_took_is_set_aside(pair: Pair) -> None:
    """A follower is promoted while the old leader lives, and goes on with its other follower, which confirms."""
    address = f"127.0.0.1 {pair.port}"
    stays, heir = pair.open("stays"), pair.open("heir")
    other, new = pair.serve(stays, replicaof=address), pair.serve(heir, replicaof=address)
    old = pair.client()
    old.xadd("orders", {"n": 1})
    assert old.wait(2, 60_000) == 2
    assert pair.client(new.port).execute_command("REPLICAOF", "NO", "ONE") == b"OK"
    lost = old.xadd("orders", {"n": 2})
    assert old.wait(1, 60_000) == 1 and old.waitaof(1, 1, 60_000) == [1, 1]
    kept = pair.client(new.port).xadd("orders", {"n": 3})
    for port in (other.port, pair.port):
        assert pair.client(port).execute_command("REPLICAOF", "127.0.0.1", str(new.port)) == b"OK"
    for name, db in (("stays", stays), ("leader", pair.db)):
        expect_given_up(db, pair.root / name, kept, lost)


def expect_given_up(db: tidelog.Store, root: Path, kept: object, lost: bytes) -> None:
    """This store follows the new leader, and has set the other entry aside."""
    until(lambda: [id_ for id_, _ in db.xrange("orders")][1:] == [kept])
    aside = (root / QUARANTINE).glob(f"*/{REPORT}")
    (stream,) = [each for path in aside for each in json.loads(path.read_text())["streams"]]
    assert (stream["first"].encode(), stream["entries"]) == (lost, 1)
