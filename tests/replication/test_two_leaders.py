"""Two leaders for a while: what the losing side took is given up, confirmed or not, and kept in quarantine/."""

from __future__ import annotations

import json

from tests.replication.conftest import Pair
from tests.until import until

from tidelog.aof.identity import QUARANTINE
from tidelog.aof.surplus import REPORT


def test_what_the_losing_side_took_is_set_aside(pair: Pair) -> None:
    """A follower is promoted while the old leader lives, and goes on with its other follower, which confirms."""
    address = f"127.0.0.1 {pair.port}"
    stays, heir = pair.open("stays"), pair.open("heir")
    other, new = pair.serve(stays, replicaof=address), pair.serve(heir, replicaof=address)
    old = pair.client()
    old.xadd("orders", {"n": 1})
    assert old.wait(2, 30_000) == 2
    assert pair.client(new.port).execute_command("REPLICAOF", "NO", "ONE") == b"OK"
    lost = old.xadd("orders", {"n": 2})
    assert old.wait(1, 30_000) == 1 and old.waitaof(1, 1, 30_000) == [1, 1]
    kept = pair.client(new.port).xadd("orders", {"n": 3})
    for port in (other.port, pair.port):
        assert pair.client(port).execute_command("REPLICAOF", "127.0.0.1", str(new.port)) == b"OK"
    for name, db in (("stays", stays), ("leader", pair.db)):
        until(lambda db=db: db.xlen("orders") == 2)
        assert [id_ for id_, _ in db.xrange("orders")][1] == kept
        aside = (pair.root / name / QUARANTINE).glob(f"*/{REPORT}")
        reports = [json.loads(path.read_text()) for path in aside]
        (stream,) = [each for report in reports for each in report["streams"]]
        assert (stream["first"].encode(), stream["entries"]) == (lost, 1)
