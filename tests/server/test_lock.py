"""redis-py's Lock: its three scripts do here what they do in a real redis-server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError, NoScriptError, ResponseError
from redis.lock import Lock
from tests.server.conftest import Running, Start
from tests.server.real_redis import real_redis

TEXTS = [Lock.LUA_RELEASE_SCRIPT, Lock.LUA_EXTEND_SCRIPT, Lock.LUA_REACQUIRE_SCRIPT]
RELEASE, EXTEND, REACQUIRE = (hashlib.sha1(text.encode()).hexdigest() for text in TEXTS)


@pytest.fixture(scope="module")
def real() -> Iterator[Any]:
    with real_redis() as (server, _):
        yield str(server.socket)


@pytest.fixture(params=["tidelog", "redis"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "tidelog":
        server: Running = request.getfixturevalue("server")
        made = server.client()
    else:
        made = redis.Redis(unix_socket_path=request.getfixturevalue("real"))
    with made:
        made.flushall()
        made.script_flush()
        yield made


def test_a_lock(client: Any) -> None:
    first, second = client.lock("door", timeout=100), client.lock("door", timeout=100)
    assert first.acquire(blocking=False)
    assert not second.acquire(blocking=False)
    assert first.locked() and first.owned() and not second.owned()
    with pytest.raises(LockError):
        second.release()
    assert first.extend(50) and 140_000 < client.pttl("door") <= 150_000
    assert first.extend(10, replace_ttl=True) and 9_000 < client.pttl("door") <= 10_000
    assert first.reacquire() and 90_000 < client.pttl("door") <= 100_000
    first.release()
    assert client.exists("door") == 0
    with second:
        assert second.owned()


def test_a_lock_of_another_owner(client: Any) -> None:
    lock = client.lock("door", timeout=100)
    assert lock.acquire()
    client.set("door", "stolen")
    for call in (lock.release, lock.reacquire, lambda: lock.extend(1)):
        lock.local.token = b"mine"
        with pytest.raises(LockNotOwnedError):
            call()
    assert client.get("door") == b"stolen"


def test_a_lock_without_an_end_is_not_extended(client: Any) -> None:
    client.set("door", "mine")
    assert client.evalsha(client.script_load(TEXTS[1]), 1, "door", "mine", 1000, 0) == 0
    assert client.pttl("door") == -1


def test_the_scripts_by_their_text_and_their_sha1(client: Any) -> None:
    for text, sha, more in zip(TEXTS, (RELEASE, EXTEND, REACQUIRE), ([], [5, 0], [5]), strict=True):
        assert client.script_load(text) == sha
        assert client.script_exists(sha, "0" * 40) == [True, False]
        assert client.eval(text, 1, "nothing", "token", *more) == 0
        assert client.evalsha(sha.upper(), 1, "nothing", "token", *more) == 0


def test_a_key_of_another_type(client: Any) -> None:
    client.xadd("door", {"a": 1})
    with pytest.raises(ResponseError, match="WRONGTYPE|wrong kind of value"):
        client.eval(TEXTS[0], 1, "door", "token")


def test_lifetimes_that_are_no_numbers(client: Any) -> None:
    client.set("door", "mine", px=100_000)
    for text, words in ((TEXTS[1], ["x", "1"]), (TEXTS[1], ["x", "0"]), (TEXTS[2], ["1.5"])):
        with pytest.raises(ResponseError):
            client.eval(text, 1, "door", "mine", *words)
    assert 0 < client.pttl("door") <= 100_000


def test_wrong_numbers_of_keys_and_arguments(server: Running) -> None:
    with server.client() as ours:
        for words in ([0], [2, "a", "b", "t"], [1, "a"], [1, "a", "t", "more"], [-1], ["x"]):
            with pytest.raises(ResponseError):
                ours.execute_command("EVALSHA", RELEASE, *words)


def test_other_scripts_are_refused(server: Running) -> None:
    with server.client() as ours:
        with pytest.raises(NoScriptError):
            ours.evalsha("0" * 40, 0)
        for words in (("EVAL", "return 1", 0), ("SCRIPT", "LOAD", "return 1")):
            with pytest.raises(ResponseError, match="no scripts, except the three of redis-py's"):
                ours.execute_command(*words)


def test_a_user_needs_the_category_and_the_key(server: Running) -> None:
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "bob", "on", "nopass", "~door*", "+@all")
        admin.execute_command("ACL", "SETUSER", "eve", "on", "nopass", "~*", "+@all", "-@scripting")
        with server.client(username="bob", password="x") as bob:
            assert bob.evalsha(RELEASE, 1, "door", "t") == 0
            with pytest.raises(ResponseError, match="key"):
                bob.evalsha(RELEASE, 1, "window", "t")
        with server.client(username="eve", password="x") as eve:
            with pytest.raises(ResponseError, match="evalsha"):
                eve.evalsha(RELEASE, 1, "door", "t")
        admin.execute_command("ACL", "DELUSER", "bob", "eve")


def test_a_released_lock_stays_released_after_a_restart(start: Start) -> None:
    running = start()
    with running.client() as ours:
        kept, gone = ours.lock("kept", timeout=1000), ours.lock("gone", timeout=1000)
        assert kept.acquire() and gone.acquire() and kept.extend(1000)
        gone.release()
    running.serving.close()
    running.db.close()
    with start(running.root).client() as ours:
        assert ours.exists("gone") == 0
        assert 1_900_000 < ours.pttl("kept") <= 2_000_000
