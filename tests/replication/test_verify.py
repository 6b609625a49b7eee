"""A follower's data is compared with its leader's: they agree, or the link stops and says since when they differ."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, last_lsn
from tests.until import until

import tidelog
from tidelog.aof import identity
from tidelog.disk.real import RealDisk
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.effects.effect import SET
from tidelog.replication.errors import Different, LinkError, ProtocolError
from tidelog.replication.link import Link
from tidelog.replication.verify import Comparison, FrameEnd, parse_frame_end
from tidelog.snapshot.digested import Beyond, Digesting
from tidelog.tools import exits
from tidelog.tools.replica import verify


def told(client: Any, *words: str) -> str:
    """The reply, or the text of the error."""
    try:
        reply: bytes = client.execute_command(*words)
        return reply.decode()
    except redis.ResponseError as error:
        return str(error)


def agreed_at(db: tidelog.Store) -> int:
    roles = inside.core(db).roles
    assert roles is not None
    return roles.agreed


def falsify(db: tidelog.Store) -> None:
    """Change the data of a store without its log, and fold that into its checkpoint."""
    core = inside.core(db)
    with core.lock:
        APPLY[SET](core.state, (SET, 0, b"wrong", b"1", -1))
    db.checkpoint()


@pytest.fixture
def both(pair: Pair) -> tuple[tidelog.Store, Any]:
    """A follower with what its leader has, and a client of it."""
    for number in range(20):
        pair.db.xadd("orders", {"n": number})
    db, port = pair.follower()
    caught_up(pair.db, db)
    return db, pair.client(port)


def test_they_agree_with_and_without_checkpoints(pair: Pair, both: tuple[Any, Any]) -> None:
    db, client = both
    lsn = last_lsn(db)
    assert told(client, "TIDELOG", "VERIFY") == f"SAME {lsn}"
    db.checkpoint()
    pair.db.xadd("orders", {"n": 1})
    pair.db.checkpoint()
    caught_up(pair.db, db)
    assert client.info("replication")["master_verified_lsn"] == lsn
    assert told(client, "TIDELOG", "VERIFY") == f"SAME {lsn + 1}"
    assert agreed_at(db) == lsn + 1
    assert client.info("replication")["master_verified_lsn"] == lsn + 1
    assert db.info()["replication"]["verified_lsn"] == lsn + 1


def test_a_checkpoint_that_overtakes_the_question(
    pair: Pair, both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader can no longer tell its state at that LSN. The follower asks for a later one."""
    db, client = both
    lsn, asked = last_lsn(db), []
    real = Link._ask

    async def ask(self: Link, words: list[bytes]) -> bytes:
        asked.append(int(words[2]))
        if len(asked) < 3:
            pair.db.xadd("orders", {"n": 1})
            pair.db.checkpoint()
        return await real(self, words)

    monkeypatch.setattr(Link, "_ask", ask)
    assert told(client, "TIDELOG", "VERIFY") == f"SAME {lsn + 2}"
    assert asked == [lsn, lsn + 1, lsn + 2]


def test_a_close_does_not_wait_for_a_comparison(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.db.xadd("orders", {"n": 1})
    db = pair.follow()
    caught_up(pair.db, db)
    asked = threading.Event()

    async def ask(self: Link, words: list[bytes]) -> bytes:
        asked.set()
        await asyncio.sleep(3600)
        raise AssertionError

    monkeypatch.setattr(Link, "_ask", ask)
    link = inside.core(db).link
    assert link is not None
    verifying = link.verify()
    assert asked.wait(60)
    db.checkpoint()
    db.close()
    with pytest.raises(concurrent.futures.CancelledError):
        verifying.result(60)


def test_a_difference_stops_the_follower_until_a_copy_replaces_it(
    pair: Pair, both: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    db, client = both
    agreed = last_lsn(db)
    assert told(client, "TIDELOG", "VERIFY") == f"SAME {agreed}"
    pair.db.xadd("orders", {"n": 1})
    caught_up(pair.db, db)
    falsify(db)
    reply = told(client, "TIDELOG", "VERIFY")
    assert reply.startswith("DIFFERENT the data here and the leader's differ")
    assert f"something in LSN ({agreed}, {agreed + 1}]" in reply

    def stopped() -> bool:
        info = client.info("replication")
        failure = str(info.get("master_link_failure", ""))
        return info["master_link_status"] == "down" and "the leader's differ" in failure

    until(stopped)
    until(lambda: "it refuses what this log has at LSN" in caplog.text)
    pair.db.xadd("orders", {"n": 2})
    assert client.xlen("orders") == 21  # it serves on, and takes nothing more
    client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port))
    until(stopped)
    client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port), "REPLACE")
    until(lambda: client.info("replication")["master_link_status"] == "up")
    caught_up(pair.db, db)
    assert db.digest() == pair.db.digest()
    assert len(list((inside.core(db).root / identity.QUARANTINE).iterdir())) == 1
    assert told(client, "TIDELOG", "VERIFY").startswith("SAME ")


def test_every_so_often(pair: Pair, both: tuple[Any, Any]) -> None:
    db, client = both
    client.config_set("replica-verify-every", 1)
    until(lambda: agreed_at(db) == last_lsn(db))
    falsify(db)
    pair.db.xadd("orders", {"n": 1})
    until(lambda: "leader's differ" in str(client.info("replication").get("master_link_failure")))


def test_an_embedded_follower(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 1})
    db = pair.follow()
    caught_up(pair.db, db)
    link = inside.core(db).link
    assert link is not None
    assert link.verify().result(60) == last_lsn(db)
    falsify(db)
    with pytest.raises(Different):
        link.verify().result(60)


def test_a_leader_is_asked(pair: Pair) -> None:
    client = pair.client()
    assert told(client, "TIDELOG", "VERIFY") == "this store follows no leader"
    pair.db.xadd("orders", {"n": 1})
    lsn = last_lsn(pair.db)
    digesting = Digesting(RealDisk(), inside.core(pair.db).root)
    found = digesting.result()
    assert (found.lsn, found.digest) == (lsn, pair.db.digest())
    crc = f"{found.crc:08x}"
    ask = ("TIDELOG", "DIGEST")
    assert told(client, *ask, str(lsn), crc) == f"DIGEST {lsn} {pair.db.digest()}"
    assert told(client, *ask, str(lsn + 1), crc) == f"the log here ends with LSN {lsn}"
    assert told(client, *ask, str(lsn), "00000000").startswith(f"PARTED {lsn} ")
    for words in (("x", crc), ("0", crc), (str(1 << 64), crc), ("1", "xyz"), ("1", "0" * 9)):
        assert told(client, *ask, *words).startswith("TIDELOG DIGEST needs")
    pair.db.xadd("orders", {"n": 2})
    pair.db.checkpoint()
    assert told(client, *ask, str(lsn), crc).startswith(f"BEYOND {lsn + 1} ")
    with pytest.raises(Beyond):
        Digesting(RealDisk(), inside.core(pair.db).root, lsn).result()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"-PARTED 5 another", Different),
        (b"+DIGEST 4 " + b"0" * 64, ProtocolError),
        (b"+DIGEST 5 " + b"0" * 63, ProtocolError),
        (b"+OK", ProtocolError),
        (b"", ProtocolError),
    ],
)
def test_an_answer_that_is_none(pair: Pair, line: bytes, error: type[Exception]) -> None:
    while last_lsn(pair.db) < 5:
        pair.db.xadd("orders", {"n": 1})
    comparison = Comparison(inside.core(pair.db))
    try:
        comparison.begin()
        assert comparison.again_from(line) is None
        with pytest.raises(error):
            comparison.conclude(line)
        assert comparison.again_from(b"-BEYOND 9 more") == 9
        with pytest.raises(LinkError, match="does not verify: NOPERM"):
            comparison.again_from(b"-NOPERM you must not")
    finally:
        comparison.end()


def test_the_words_of_a_question() -> None:
    assert parse_frame_end(FrameEnd(4711, 0xAB).words()) == (4711, 0xAB)


def run(*words: str) -> tuple[int, str]:
    """`tidelog replica verify`: its exit code and what it prints."""
    done = CliRunner().invoke(verify.command, words)
    return done.exit_code, done.output


def test_the_command(pair: Pair, both: tuple[Any, Any]) -> None:
    db, client = both
    path = str(inside.core(db).root)
    url = f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
    leader = f"redis://127.0.0.1:{pair.port}"
    lsn = last_lsn(db)
    assert run(url) == (0, f"{url[8:]} and its leader hold the same data at LSN {lsn}\n")
    for words in ((path,), (path, "--leader", leader)):
        assert run(*words) == (0, f"{path} and its leader hold the same data at LSN {lsn}\n")
    code, said = run(leader)
    assert code == exits.REFUSED and "follows no leader" in said
    code, said = run(str(inside.core(pair.db).root))
    assert code == exits.REFUSED and "follows no leader; name one" in said
    assert run(url, "--leader", leader)[0] == exits.USAGE
    falsify(db)
    code, said = run(path)
    assert code == exits.VERIFY_AGREEMENT and f"hold different data at LSN {lsn}" in said
    code, said = run(url)
    assert code == exits.VERIFY_AGREEMENT and "the leader's differ" in said
    pair.db.xadd("orders", {"n": 1})
    pair.db.checkpoint()
    code, said = run(path)
    assert code == exits.REFUSED and "let the follower catch up" in said
