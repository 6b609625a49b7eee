"""Changes of the role that fail, and a role that is missing: one error that says what to do, and no record is lost."""

from __future__ import annotations

import errno
import os

import pytest
import redis
from tests.replication.conftest import Pair
from tests.replication.stores import equal
from tests.until import until

import tidelog
from tidelog.disk.real import RealFile


def test_a_poisoned_store_keeps_its_role(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    db = pair.open("poisoned", fsync="always")
    client = pair.client(pair.serve(db).port)
    client.xadd("orders", {"n": 1})
    real, failing = RealFile.fdatasync, {"now": True}

    def fdatasync(file: RealFile, *args: int) -> object:
        if failing["now"]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(file, *args)

    monkeypatch.setattr(RealFile, "fdatasync", fdatasync)
    with pytest.raises(redis.RedisError):
        client.xadd("orders", {"n": 2})
    failing["now"] = False
    with pytest.raises(redis.ResponseError, match="close the store and open it again"):
        client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port))
    assert client.execute_command("MULTI") == b"OK"
    client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port))
    with pytest.raises(redis.ResponseError):
        reply = client.execute_command("EXEC")
        if isinstance(reply[0], redis.ResponseError):
            raise reply[0]
    assert client.role()[0] == b"master"
    with pytest.raises(tidelog.StorePoisoned):
        db.close()


def test_a_follower_without_its_role_is_told_to_follow_again(pair: Pair) -> None:
    """The file is gone, for example because a backup left it out. Its unit file names the leader."""
    pair.db.xadd("orders", {"n": 1})
    db = pair.follow()
    equal(pair.db, db)
    db.close()
    (pair.root / "follower" / "REPLICA").unlink()
    db = pair.follow()
    assert db.role().kind == "follower"
    pair.db.xadd("orders", {"n": 2})
    equal(pair.db, db)


def test_a_follower_without_its_role_that_took_writes_is_stopped(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Opened without a leader it leads. Then nobody gave up its records, so it does not lose them without consent."""
    pair.db.xadd("orders", {"n": 1})
    db = pair.follow()
    equal(pair.db, db)
    db.close()
    (pair.root / "follower" / "REPLICA").unlink()
    warning = "was a follower, and the file REPLICA that says whom it follows is missing"
    assert warning not in caplog.text
    with tidelog.open(pair.root / "follower") as alone:
        assert f"{pair.root / 'follower'} {warning}" in caplog.text
        alone.xadd("orders", {"mine": 1})
    caplog.clear()
    tidelog.open(pair.root / "follower").close()
    assert warning not in caplog.text  # it has led since
    pair.db.xadd("orders", {"n": 2})
    db = pair.follow()
    until(lambda: "REPLACE" in db.info()["replication"]["link_failure"])
    assert db.xlen("orders") == 2
    assert b"mine" in db.xrange("orders")[-1][1]


def test_a_promotion_says_that_the_configuration_is_older(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    _, port = pair.follower()
    client = pair.client(port)
    for times in (1, 0):  # the second time it follows by a command, and the option has been told of
        until(lambda: client.role()[0] == b"slave")
        caplog.clear()
        client.execute_command("REPLICAOF", "NO", "ONE")
        until(lambda: client.role()[0] == b"master")
        assert caplog.text.count("take the option `replicaof` out") == times
        client.execute_command("REPLICAOF", "127.0.0.1", pair.proxy.port)
