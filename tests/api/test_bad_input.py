"""Calls that make no sense: one clear error each, and the state as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog

MAX = 18446744073709551615


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tidelog.Store]:
    with tidelog.open(tmp_path / "s", fsync="no") as store:
        store.xadd("s", {"f": 1}, id="5-1")
        store.xgroup_create("s", "g", "0")
        store.set("k", "text")
        yield store


Call = Callable[[Any], object]

# fmt: off
WORDS = {
    "XADD": "wrong number of arguments for 'xadd' command",
    "XADD s": "wrong number of arguments for 'xadd' command",
    "XADD s * f": "wrong number of arguments for 'xadd' command",
    "XADD s * f v g": "wrong number of arguments for 'xadd' command",
    "XADD s word f v": "Invalid stream ID specified as stream command argument",
    f"XADD s {MAX + 1}-0 f v": "Invalid stream ID specified as stream command argument",
    "XADD s 5-1 f v": "The ID specified in XADD is equal or smaller than the target stream top item",
    "XADD s 0-0 f v": "The ID specified in XADD must be greater than 0-0",
    "XADD s MAXLEN -1 * f v": "The MAXLEN argument must be >= 0.",
    "XRANGE s - + COUNT 9223372036854775808": "value is not an integer or out of range",
    f"XRANGE s ({MAX}-{MAX} +": "invalid start ID for the interval",
    "XREAD BLOCK -1 STREAMS s $": "timeout is negative",
    "XREAD COUNT x STREAMS s 0": "value is not an integer or out of range",
    "XREAD STREAMS s": "wrong number of arguments for 'xread' command",
    "XREADGROUP GROUP none c STREAMS s >":
        "NOGROUP No such key 's' or consumer group 'none' in XREADGROUP with GROUP option",
    "XGROUP CREATE s g 0": "BUSYGROUP Consumer Group name already exists",
    "XACK s g word": "Invalid stream ID specified as stream command argument",
    "GET s": "WRONGTYPE Operation against a key holding the wrong kind of value",
    "SET k v EX 0": "invalid expire time in 'set' command",
    "NOSUCH x": "unknown command 'NOSUCH', with args beginning with: 'x' ",
}
CALLS: dict[str, tuple[Call, str]] = {
    "None as a value": (lambda db: db.xadd("s", {"f": None}), "Invalid input of type: 'NoneType'"),
    "a bool": (lambda db: db.xadd("s", {"f": True}), "Invalid input of type: 'bool'"),
    "a list": (lambda db: db.xadd("s", {"f": [1]}), "Invalid input of type: 'list'"),
    "a dict in a dict": (lambda db: db.xadd("s", {"f": {"g": 1}}), "Invalid input of type: 'dict'"),
    "None as a key": (lambda db: db.xadd(None, {"f": 1}), "Invalid input of type: 'NoneType'"),
    "IDs for longer than the engine keeps": (
        lambda db: db.xcfgset("s", idmp_duration=86_401),
        "XCFGSET idmp_duration must be an integer between 1 and 86,400"),
    "more IDs than the engine keeps": (
        lambda db: db.xcfgset("s", idmp_maxsize=10_001),
        "XCFGSET idmp_maxsize must be an integer between 1 and 10,000"),
    "no fields": (lambda db: db.xadd("s", {}), "XADD fields must be a non-empty dict"),
    "None as the fields": (lambda db: db.xadd("s", None), "XADD fields must be a non-empty dict"),
    "pairs as the fields": (lambda db: db.xadd("s", [("f", 1)]), "XADD fields must be a non-empty dict"),
    "an ID of another type": (lambda db: db.xadd("s", {"f": 1}, id=None), "Invalid input of type: 'NoneType'"),
    "many: None": (lambda db: db.xadd_many("s", None), "xadd_many needs an iterable of dicts, not 'NoneType'"),
    "many: one dict": (lambda db: db.xadd_many("s", {"ab": 1}), "xadd_many needs an iterable of dicts, not 'dict'"),
    "many: a str": (lambda db: db.xadd_many("s", "ab"), "xadd_many needs an iterable of dicts, not 'str'"),
    "many: a row of str": (lambda db: db.xadd_many("s", [{"f": 1}, "ab"]), "Invalid row of type: 'str'"),
    "many: a row of None": (lambda db: db.xadd_many("s", [{"f": 1}, None]), "Invalid row of type: 'NoneType'"),
    "many: a nested value": (lambda db: db.xadd_many("s", [{"f": 1}, {"f": [1]}]), "Invalid input of type: 'list'"),
    "many: an empty row": (lambda db: db.xadd_many("s", [{"f": 1}, {}]), "wrong number of arguments for 'xadd'"),
    "COUNT 0": (lambda db: db.xread({"s": 0}, count=0), "XREAD count must be a positive integer"),
    "COUNT as text": (lambda db: db.xread({"s": 0}, count="5"), "XREAD count must be a positive integer"),
    "COUNT of 2^200": (lambda db: db.xread({"s": 0}, count=1 << 200), "value is not an integer or out of range"),
    "BLOCK -1": (lambda db: db.xread({"s": 0}, block=-1), "XREAD block must be a non-negative integer"),
    "BLOCK of 2^63": (lambda db: db.xread({"s": 0}, block=1 << 63), "timeout is not an integer or out of range"),
    "no streams": (lambda db: db.xread({}), "XREAD streams must be a non empty dict"),
    "a list of streams": (lambda db: db.xreadgroup("g", "c", ["s"]), "XREADGROUP streams must be a non empty dict"),
    "nothing to claim": (lambda db: db.xclaim("s", "g", "c", 0, []), "XCLAIM message_ids must be a non empty list"),
    "nothing to ack": (lambda db: db.xack("s", "g"), "wrong number of arguments for 'xack' command"),
    "database 16": (lambda db: db.db(16), "there is no database 16; choose one from 0 to 15"),
    "database 'a'": (lambda db: db.db("a"), "there is no database 'a'"),
    "a pipeline: no words": (lambda db: db.pipeline().execute_command(), "execute_command needs a command"),
    "a pipeline: a blank": (lambda db: db.pipeline(False).execute_command(" "), "execute_command needs a command"),
    "a pipeline: MULTI": (lambda db: db.pipeline().set("k", 1).execute_command("multi"), "does not take the command M"),
    "a pipeline: WATCH": (lambda db: db.pipeline().execute_command("WATCH s"), "does not take the command W"),
    "a level of another type": (lambda db: db.at({}), "level must be one of: written, fsynced"),
    "a barrier of another type": (lambda db: db.barrier(["written"]), "level must be one of: written, fsynced"),
    "a pattern of another type": (lambda db: db.config_get(b"*"), "a pattern of config_get must be a str, not b'*'"),
    "a setting of another type": (lambda db: db.config_set({}, 1), "cannot set '{}' to '1'"),
    "IDs of the dead": (lambda db: db.queue("q").dead.redrive(5), "ids must be one ID or several IDs, not 5"),
    "no such level": (lambda db: db.at("disk"), "level must be one of: written, fsynced"),
    "no such barrier": (lambda db: db.barrier("disk"), "level must be one of: written, fsynced"),
    "no such policy": (lambda db: setattr(db, "fsync", "sometimes"), "fsync must be one of: always, everysec, no"),
    "no such setting": (lambda db: db.config_set("maxmemory", 1), "CONFIG SET failed - cannot set 'maxmemory'"),
    "a setting below 0": (lambda db: db.config_set("stream-node-max-entries", -1), "CONFIG SET failed"),
    "a name alone": (lambda db: db.config_set("appendfsync", "no", "x"), "CONFIG SET needs a value for each name"),
    "SELECT": (lambda db: db.execute_command("SELECT", 1), "a store has no session; use db(n)"),
    "no command": (lambda db: db.execute_command(), "execute_command needs a command"),
    "refresh of the writer": (lambda db: db.refresh(), "only for a store opened with read_only=True"),
    "a bad queued value": (lambda db: db.pipeline().set("a", 1).xadd("s", {"f": None}), "Invalid input of type"),
    "a bad queued command": (lambda db: db.pipeline().execute_command("NOSUCH").execute(), "unknown command"),
}
# fmt: on


@pytest.mark.parametrize("words", WORDS)
def test_redis_words_for_a_bad_command(db: tidelog.Store, words: str) -> None:
    before = db.digest()
    with pytest.raises(tidelog.ResponseError) as caught:
        db.execute_command(*words.split())
    assert str(caught.value) == WORDS[words]
    assert db.digest() == before


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_call_changes_nothing(db: tidelog.Store, name: str) -> None:
    call, text = CALLS[name]
    before = db.digest()
    with pytest.raises(tidelog.TidelogError) as caught:
        call(db)
    assert text in str(caught.value)
    assert db.digest() == before


def test_a_text_that_is_no_unicode(db: tidelog.Store) -> None:
    before = db.digest()
    for call in (
        lambda: db.xadd("s", {"f": "\ud800"}),
        lambda: db.xadd_many("s", [{"f": "\ud800"}]),
        lambda: db.get("\ud800"),
    ):
        with pytest.raises(UnicodeEncodeError):  # as redis-py
            call()
    assert db.digest() == before


def test_rows_that_break_off(db: tidelog.Store) -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield {"f": 1}
        raise KeyError("the caller's own")

    before = db.digest()
    with pytest.raises(KeyError, match="the caller's own"):
        db.xadd_many("s", rows())
    assert db.digest() == before


def test_the_last_id_there_is(db: tidelog.Store) -> None:
    last = f"{MAX}-{MAX}"
    assert db.xadd("s", {"f": 1}, id=last) == last.encode()
    before = db.digest()
    for call in (
        lambda: db.xadd("s", {"f": 1}),
        lambda: db.xadd_many("s", [{"f": 1}]),
        lambda: db.xadd("s", {"f": 1}, id=f"{MAX}-*"),
    ):
        with pytest.raises(tidelog.ResponseError, match="exhausted the last possible ID"):
            call()
    assert db.digest() == before
    assert [id for id, _ in db.xrange("s", min=last)] == [last.encode()]
    assert db.xread({"s": last}) == []


def test_odd_and_large_values(db: tidelog.Store) -> None:
    fields = {"": "", "\0\n": "\0\r\n", 1: 1.5, 10**40: float("inf"), b"\xff": bytearray(5 << 20)}
    db.xadd("a\0b\nc", fields)
    ((_, read),) = db.xrange("a\0b\nc")
    assert read == {
        b"": b"",
        b"\0\n": b"\0\r\n",
        b"1": b"1.5",
        b"1" + b"0" * 40: b"inf",
        b"\xff": bytes(5 << 20),
    }


def test_a_range_of_no_entries_at_all(db: tidelog.Store) -> None:
    """XRANGE with COUNT 0 has a reply of its own, which redis-py shows as None."""
    for count in (0, -5):
        assert db.execute_command("XRANGE", "s", "-", "+", "COUNT", count) is None
        assert db.execute_command("XREVRANGE", "s", "+", "-", "COUNT", count) is None


CLOSED: dict[str, Call] = {
    "xadd": lambda db: db.xadd("s", {"f": 1}),
    "xadd_many": lambda db: db.xadd_many("s", [{"f": 1}]),
    "get": lambda db: db.get("k"),
    "pipeline": lambda db: db.pipeline().get("k").execute(),
    "view": lambda db: db.db(1).get("k"),
    "digest": lambda db: db.digest(),
    "barrier": lambda db: db.barrier(),
    "fsync": lambda db: setattr(db, "fsync", "no"),
    "config_set": lambda db: db.config_set("stream-node-max-entries", 5),
    "ping": lambda db: db.ping(),
}


@pytest.mark.parametrize("name", CLOSED)
def test_after_close(tmp_path: Path, name: str) -> None:
    db = tidelog.open(tmp_path / "s")
    db.close()
    db.close()
    with pytest.raises(tidelog.StoreClosed, match="the store was closed; open it again"):
        CLOSED[name](db)


def test_from_another_loop(tmp_path: Path) -> None:
    """A store belongs to no loop: each call waits in the one it is made in."""

    async def opened() -> tidelog.AsyncStore:
        return await tidelog.aopen(tmp_path / "s")

    async def used(db: tidelog.AsyncStore) -> int:
        await db.xadd("s", {"f": 1})
        assert await db.xread({"s": "$"}, block=5) == []
        return await db.xlen("s")

    db = asyncio.run(opened())
    assert asyncio.run(used(db)) == 1
    assert asyncio.run(used(db)) == 2
    asyncio.run(db.aclose())


def test_xcfgset_takes_the_limits_of_the_engine(db: tidelog.Store) -> None:
    db.xcfgset("s", idmp_duration=86_400, idmp_maxsize=10_000)
    told = db.xinfo_stream("s")
    assert (told["idmp-duration"], told["idmp-maxsize"]) == (86_400, 10_000)
