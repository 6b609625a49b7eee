"""Tokens: a write's place in the history of a store, and waiting for it on a follower."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from tests import inside
from tests.oracle.wire import OK
from tests.replication.conftest import Pair
from tests.replication.stores import begin_to_follow
from tests.server.wire import calls, connect
from tests.until import until

import tidelog
from tidelog.aof.reading.reader import Epoch
from tidelog.store.errors import DataError, TokenLate, TokenLost
from tidelog.store.tokens import Token, Verdict, judge, parse

A, B, C = Epoch(1, 0xA, 1), Epoch(2, 0xB, 50), Epoch(1 << 32, 0xC, 80)


@pytest.mark.parametrize(
    "life, lsn, lives, last, verdict",
    [
        (A, 10, [A], 10, Verdict.HERE),
        (A, 10, [A], 9, Verdict.COMING),
        (A, 49, [A, B, C], 90, Verdict.HERE),
        (A, 50, [A, B, C], 90, Verdict.LOST),  # the life ended before it
        (A, 60, [A, C], 90, Verdict.HERE),
        (B, 60, [A, C], 90, Verdict.LOST),  # the history has gone on without that life
        (B, 60, [A], 90, Verdict.COMING),
        (C, 90, [A, B], 90, Verdict.COMING),
        (Epoch(2, 0xD, 50), 60, [A, B], 90, Verdict.LOST),  # a life of the same number
        (A, 10, [], 0, Verdict.COMING),
        (A, 0, [], 0, Verdict.HERE),
    ],
)
def test_the_verdict(
    life: Epoch, lsn: int, lives: list[Epoch], last: int, verdict: Verdict
) -> None:
    assert judge(Token("0" * 8, life.number, life.incarnation, lsn), lives, last) is verdict


def test_a_token_as_text() -> None:
    text = "5f0c4e21-100000000-9ee6e1181d166d61-4711"
    assert parse(text) == parse(text.encode()) == ("5f0c4e21", 1 << 32, 0x9EE6E1181D166D61, 4711)
    assert str(parse(text)) == text


WRONG: list[Any] = [
    *("", "x", "5f0c4e21-1-9ee6e1181d166d61", "5f0c4e21-1-9ee6e1181d166d61-04711"),
    *("5F0c4e21-1-9ee6e1181d166d61-1", "5f0c4e21-01-9ee6e1181d166d61-1", b"\xff"),
    *(
        "5f0c4e21-1-9ee6e1181d166d61-18446744073709551616",
        "5f0c4e21-1-9ee6e1181d166d61-1\n",
        None,
        1,
    ),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_bad_tokens_are_one_error(wrong: Any) -> None:
    with pytest.raises(DataError, match="^invalid token: pass the text"):
        parse(wrong)


def token_of(write: Callable[[tidelog.Store], object], db: tidelog.Store) -> str:
    view = db.receipts()
    write(view)
    assert view.last_receipt is not None
    return view.last_receipt.token


def test_a_follower_waits_for_a_write(pair: Pair) -> None:
    follower = pair.follow()
    for n in range(20):
        token = token_of(lambda db: db.set("a", n), pair.db)
        follower.wait_for(token, 60)
        assert follower.get("a") == b"%d" % n
        pair.db.wait_for(token, 0)
    assert pair.db.barrier("written").token == token

    async def main() -> None:
        db = tidelog.AsyncStore(inside.core(follower), decode=False)
        for n in range(5):
            await db.wait_for(token_of(lambda db: db.set("a", n), pair.db), 60)
            assert await db.get("a") == b"%d" % n
        token = parse(pair.db.barrier("written").token)
        with pytest.raises(TokenLate):
            await db.wait_for(str(token._replace(lsn=token.lsn + 9)), 0.01)

    asyncio.run(main())
    assert not inside.core(follower).arrivals._waiting


def test_what_does_not_come_is_late(pair: Pair, tmp_path: Path) -> None:
    follower = pair.follow()
    pair.db.at("replicated", timeout=60).set("a", 1)
    token = parse(pair.db.barrier("written").token)
    later = str(token._replace(lsn=token.lsn + 1))
    with pytest.raises(
        TokenLate, match=f"has LSN {token.lsn}, and the token is of LSN {token.lsn + 1}"
    ):
        follower.wait_for(later, 0.01)
    waiting = threading.Thread(target=follower.wait_for, args=(later, 60), daemon=True)
    waiting.start()
    until(lambda: bool(inside.core(follower).arrivals._waiting))
    pair.db.set("a", 2)
    waiting.join(60)
    assert not waiting.is_alive()
    with tidelog.open(tmp_path / "other") as other, pytest.raises(DataError, match="of the store"):
        other.wait_for(later, 0)


def test_a_write_that_was_given_up_is_lost(pair: Pair) -> None:
    follower = pair.follow()
    pair.db.at("replicated", timeout=60).set("a", 1)
    kept = pair.db.barrier("written").token
    with closing(connect(pair.port)) as client:
        follower.promote()
        lost = token_of(lambda db: db.set("a", 2), pair.db)
        assert calls(client, "SET a 3") == [OK]
        told = calls(client, "TIDELOG TOKEN")[0]
        assert isinstance(told, bytes) and parse(told).lsn == parse(lost).lsn + 1
    begun = token_of(lambda db: db.set("a", 4), follower)
    for token in (lost, told):
        with pytest.raises(TokenLost, match="^LOST LSN [0-9]+ of life 1 was given up"):
            follower.wait_for(token, 0)
    follower.wait_for(kept, 0)
    follower.wait_for(begun, 0)
    with pytest.raises(TokenLate):
        pair.db.wait_for(begun, 0)


def test_commands(pair: Pair) -> None:
    db, port = pair.follower()
    client, other = pair.client(), pair.client(port)
    until(lambda: other.info("replication")["master_link_status"] == "up")
    with closing(connect(pair.port)) as raw:
        assert str(calls(raw, "TIDELOG TOKEN")[0]).count("-") == 3
        for n in range(10):
            token = calls(raw, f"SET a {n}", "TIDELOG TOKEN")[1]
            assert isinstance(token, bytes)
            assert other.execute_command("TIDELOG", "WAITFOR", token, 60_000) == b"OK"
            assert other.get("a") == b"%d" % n
        pair.db.set("a", "shown")
        shown = calls(raw, "GET a", "TIDELOG TOKEN")[1]
        assert isinstance(shown, bytes) and parse(shown).lsn == parse(token).lsn + 1
        assert other.execute_command("TIDELOG", "WAITFOR", shown, 60_000) == b"OK"
        assert other.get("a") == b"shown"
    later = str(parse(shown)._replace(lsn=10_000))
    for words, text in (
        (("TIDELOG", "WAITFOR", later, 10), "TIMEOUT this store has LSN"),
        (("TIDELOG", "WAITFOR", "x", 10), "invalid token"),
        (("TIDELOG", "WAITFOR", later, "x"), "timeout is not an integer"),
    ):
        with pytest.raises(redis.ResponseError, match=text):
            other.execute_command(*words)
    ended: list[Any] = []

    def wait() -> None:
        try:
            ended.append(pair.client(port).execute_command("TIDELOG", "WAITFOR", later, 0))
        except redis.ResponseError as error:
            ended.append(str(error))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    until(lambda: other.info("clients")["blocked_clients"] == 1)
    other.execute_command("REPLICAOF", "NO", "ONE")
    assert client.set("a", 1)
    db.set("b", 2)  # the next generation has begun, and that life ends before LSN 10,000
    waiting.join(60)
    assert len(ended) == 1 and ended[0].startswith("LOST LSN 10000"), ended


def test_a_wait_ends_with_its_store(tmp_path: Path) -> None:
    db = tidelog.open(tmp_path / "db")
    db.set("a", 1)
    token = parse(db.barrier().token)
    begin_to_follow(db)
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            db.wait_for(str(token._replace(lsn=99)), 10_000)
        except tidelog.StoreClosed as error:
            failed.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    until(lambda: bool(inside.core(db).arrivals._waiting))
    db.close()
    waiting.join(60)
    assert len(failed) == 1
