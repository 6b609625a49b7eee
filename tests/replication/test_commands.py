"""Replies of the commands on a leader and on a follower: WAIT, ROLE, INFO, refusals, REPLICAOF."""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.request import urlopen

import pytest
import redis
from tests.oracle.wire import OK, QUEUED, is_error
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.server.ports import free_port
from tests.server.wire import Client, calls, connect
from tests.until import until

import tidelog


def failure(client: Any) -> str:
    """Why a follower's link is down."""
    return str(client.info("replication").get("master_link_failure", ""))


READONLY = b"READONLY You can't write against a read only replica."


def up(pair: Pair, port: int) -> None:
    """Until a follower's link is up and it has what its leader had."""
    client = pair.client(port)
    until(lambda: client.info("replication")["master_link_status"] == "up")
    until(lambda: client.info("replication")["master_sync_in_progress"] == 0)


@pytest.fixture
def two(pair: Pair) -> tuple[Pair, tidelog.Store, int]:
    """A pair, its served follower, and the follower's port."""
    db, port = pair.follower()
    up(pair, port)
    return pair, db, port


Two = tuple[Pair, tidelog.Store, int]


def errors(client: Client, *commands: str) -> list[bytes]:
    """The error lines of commands that must fail."""
    found: list[bytes] = []
    for form in calls(client, *commands):
        assert is_error(form) and isinstance(form, tuple)
        found.append(form[1])
    return found


def test_wait_counts_followers(two: Two) -> None:
    pair, _, _ = two
    client = pair.client()
    client.xadd("orders", {"n": 1})
    assert client.wait(1, 60_000) == 1
    assert client.wait(2, 50) == 1
    assert client.waitaof(1, 1, 60_000) == [1, 1]
    assert client.waitaof(0, 2, 50) == [1, 1]


def test_wait_is_answered_when_the_follower_comes(pair: Pair) -> None:
    client = pair.client()
    client.xadd("orders", {"n": 1})
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(client.wait(1, 60_000)), daemon=True)
    waiting.start()
    until(lambda: pair.server.blocked == 1)
    pair.follow()
    waiting.join(60)
    assert found == [1]


def test_wait_on_a_follower(two: Two) -> None:
    client = two[0].client(two[2])
    for command in (("WAIT", "0", "0"), ("WAITAOF", "0", "0", "0")):
        with pytest.raises(redis.ResponseError, match="cannot be used with replica instances"):
            client.execute_command(*command)


def test_role_and_info(two: Two) -> None:
    pair, db, port = two
    client = pair.client()
    client.xadd("orders", {"n": 1})
    assert client.wait(1, 60_000) == 1
    lsn = pair.client().info("replication")["master_repl_offset"]
    assert pair.client().role() == [b"master", lsn, [[b"127.0.0.1", b"%d" % port, b"%d" % lsn]]]
    assert pair.client(port).role() == [b"slave", b"127.0.0.1", pair.proxy.port, b"connected", lsn]
    told = pair.client().info("replication")
    assert told["role"] == "master" and told["connected_slaves"] == 1
    slave = told["slave0"]
    assert (slave["ip"], slave["port"], slave["state"]) == ("127.0.0.1", port, "online")
    assert slave["offset"] == lsn
    until(lambda: pair.client().info("replication")["slave0"]["lag"] <= 1)
    told = pair.client(port).info("replication")
    assert told["role"] == "slave" and told["slave_repl_offset"] == lsn
    assert (told["master_host"], told["master_port"]) == ("127.0.0.1", pair.proxy.port)
    assert told["slave_priority"] == 100 and told["slave_read_only"] == 1
    assert pair.client(port, protocol=3).execute_command("HELLO")[b"role"] == b"replica"
    assert pair.client(port).config_get("replicaof") == {
        "replicaof": f"127.0.0.1 {pair.proxy.port}"
    }
    pair.proxy.close()
    until(lambda: pair.client(port).info("replication")["master_link_status"] == "down")
    assert pair.client(port).info("replication")["master_link_down_since_seconds"] >= 0


def test_lag_is_told_in_seconds_also(pair: Pair) -> None:
    http = free_port()
    _, port = pair.follower(metrics_port=http)
    up(pair, port)
    leader, client = pair.client(), pair.client(port)

    def health() -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{http}/health", timeout=60) as got:
            found: dict[str, Any] = json.load(got)
            return found

    until(lambda: leader.info("replication")["slave0"]["behind"] == 0.0)
    until(lambda: client.info("replication")["slave_lag_seconds"] == 0.0)
    until(lambda: health()["lag_seconds"] == 0.0)
    pair.proxy.open.clear()
    leader.xadd("orders", {"n": 1})
    until(lambda: leader.info("replication")["slave0"]["behind"] > 0.0)
    pair.proxy.cut()
    until(lambda: health()["link"] == "down" and health()["lag_seconds"] > 0.0)
    assert client.info("replication")["slave_lag_seconds"] > 0.0
    with urlopen(f"http://127.0.0.1:{http}/metrics", timeout=60) as got:
        assert "\ntidelog_link_lag_seconds " in got.read().decode()
    pair.proxy.open.set()
    up(pair, port)
    told = leader.info("stats")
    assert (told["sync_full"], told["sync_partial_ok"]) == (0, 2)


def test_client_list_shows_followers(two: Two) -> None:
    pair, _, _ = two
    (found,) = pair.client().client_list(_type="replica")
    assert found["flags"] == "S"
    assert all(other["flags"] == "N" for other in pair.client().client_list(_type="normal"))
    pair.client().client_kill_filter(_id=found["id"])
    until(lambda: pair.proxy.count >= 2)


def test_client_list_shows_the_link_to_the_leader(two: Two) -> None:
    pair, _, port = two
    client, count = pair.client(port), pair.proxy.count
    (found,) = client.client_list(_type="master")
    assert (found["flags"], found["addr"]) == ("M", f"127.0.0.1:{pair.proxy.port}")
    ids = [int(each["id"]) for each in client.client_list()]
    assert int(found["id"]) in ids and ids == sorted(ids)
    assert [each["flags"] for each in client.client_list(client_id=[found["id"]])] == ["M"]
    assert {each["flags"] for each in client.client_list(_type="normal")} == {"N"}
    client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    assert pair.proxy.count == count
    assert client.execute_command("CLIENT", "KILL", "USER", "default", "TYPE", "master") == 0
    assert client.execute_command("CLIENT", "KILL", "TYPE", "master") == 1
    until(lambda: pair.proxy.count > count)
    up(pair, port)
    count = pair.proxy.count
    (again,) = client.client_list(_type="master")
    assert int(again["id"]) > int(found["id"])
    assert client.client_list(_type="master")[0]["id"] == again["id"]
    assert client.execute_command("CLIENT", "KILL", again["addr"]) == b"OK"
    until(lambda: pair.proxy.count > count)
    client.execute_command("REPLICAOF", "NO", "ONE")
    until(lambda: not client.client_list(_type="master"))


def test_client_kill_ends_the_links_of_followers(two: Two) -> None:
    pair, _, port = two
    client, count = pair.client(), pair.proxy.count
    client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    assert pair.proxy.count == count
    assert client.execute_command("CLIENT", "KILL", "TYPE", "replica") == 1
    until(lambda: pair.proxy.count > count)
    until(lambda: client.execute_command("CLIENT", "KILL", "TYPE", "slave") == 1)
    up(pair, port)


def test_writes_are_refused(two: Two) -> None:
    pair, db, port = two
    pair.client().xadd("orders", {"n": 1})
    pair.client().xgroup_create("orders", "g", "0")
    caught_up(pair.db, db)
    client = connect(port)
    try:
        said = errors(
            client,
            "XADD orders * n 2",
            "XREADGROUP GROUP g c STREAMS orders >",
            "XREADGROUP GROUP g c BLOCK 0 STREAMS orders >",
            "DEL orders",
            "SET a b",
            "FUNCTION FLUSH",
        )
        assert said == [READONLY] * len(said)
        replies = calls(client, "MULTI", "XLEN orders")
        assert replies == [OK, QUEUED]
        assert errors(client, "XADD orders * n 2")[0] == READONLY
        assert errors(client, "EXEC")[0].startswith(b"EXECABORT")
        assert calls(client, "MULTI", "XLEN orders", "EXEC")[2] == [1]
        assert calls(client, "ECHO x", "DBSIZE") == [b"x", 1]
    finally:
        client.close()
    equal(pair.db, db)


def test_blocked_clients_are_told_and_closed_when_a_server_turns(pair: Pair) -> None:
    port = pair.serve(pair.open("empty")).port
    reader, waiter, idle = (connect(port) for _ in range(3))
    reader.begin(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"a", b"$")
    waiter.begin(b"WAIT", b"1", b"0")
    admin = pair.client(port)
    until(lambda: admin.info("clients")["blocked_clients"] == 2)
    assert admin.execute_command("REPLICAOF", "127.0.0.1", str(pair.proxy.port)) == b"OK"
    for client in (reader, waiter):
        assert client.rest() == (
            b"-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n"
        )
    until(lambda: calls(idle, "ECHO x") == [b"x"])  # it is loading at first
    for client in (reader, waiter, idle):
        client.close()


def test_an_empty_follower_is_loading_until_it_has_caught_up(pair: Pair) -> None:
    pair.client().xadd("orders", {"n": 1})
    pair.proxy.open.clear()
    db, port = pair.follower()
    client = connect(port)
    try:
        loading = b"LOADING Redis is loading the dataset in memory"
        assert errors(client, "XLEN orders", "PING", "DBSIZE") == [loading] * 3
        assert pair.client(port).info("replication")["master_sync_in_progress"] == 1
        pair.proxy.open.set()
        caught_up(pair.db, db)
        up(pair, port)
        assert calls(client, "XLEN orders") == [1]
    finally:
        client.close()


def test_stale_data_is_refused_if_asked(pair: Pair) -> None:
    db, port = pair.follower(replica_serve_stale_data=False)
    up(pair, port)
    client = pair.client(port)
    assert client.xlen("orders") == 0
    pair.proxy.close()
    until(lambda: client.info("replication")["master_link_status"] == "down")
    with pytest.raises(redis.ResponseError, match="MASTERDOWN|Link with MASTER is down"):
        client.xlen("orders")
    client.config_set("replica-serve-stale-data", "yes")
    assert client.xlen("orders") == 0


def test_replicaof(two: Two) -> None:
    pair, db, port = two
    client = pair.client(port)
    for words in (("a", "0"), ("a", "65536"), ("a", "x"), ("a b", "1"), ("", "1")):
        with pytest.raises(redis.ResponseError, match="Invalid master (port|host)"):
            client.execute_command("REPLICAOF", *words)
    same = client.execute_command("REPLICAOF", "127.0.0.1", str(pair.proxy.port))
    assert same == b"OK Already connected to specified master"
    assert client.execute_command("MULTI") == b"OK"
    client.execute_command("SLAVEOF", "NO", "ONE")
    client.execute_command("CLIENT", "LIST")
    assert client.execute_command("EXEC")[0] == b"OK"
    assert client.role()[0] == b"master"
    client.xadd("orders", {"n": 2})
    assert client.config_get("replicaof") == {"replicaof": ""}


def test_redis_replication_is_refused(two: Two) -> None:
    for port in (two[0].port, two[2]):
        client = two[0].client(port)
        for command in (("PSYNC", "?", "-1"), ("SYNC",), ("REPLCONF", "listening-port", "1")):
            with pytest.raises(redis.ResponseError, match="tidelog ships the frames"):
                client.execute_command(*command)


def test_a_copied_directory_is_refused(pair: Pair) -> None:
    import shutil

    first = pair.follow("first")
    caught_up(pair.db, first)
    first.close()
    shutil.copytree(pair.root / "first", pair.root / "second")
    first = pair.follow("first")
    until(lambda: first.info()["replication"].get("caught_up"))
    second = pair.follow("second")
    until(lambda: "same ID" in second.info()["replication"]["link_failure"])
    pair.db.xadd("orders", {"n": 1})
    equal(pair.db, first)


def test_a_wrong_password(pair: Pair) -> None:
    pair.client().config_set("requirepass", "secret")
    db, port = pair.follower()
    client = pair.client(port)
    until(lambda: "NOAUTH" in failure(client))
    client.config_set("masterauth", "wrong")
    until(lambda: "WRONGPASS" in failure(client))
    client.config_set("masterauth", "secret")
    up(pair, port)


def test_a_user_needs_the_command(pair: Pair) -> None:
    client = pair.client()
    client.acl_setuser(
        "ann", enabled=True, passwords=["+pw"], categories=["+@all"], commands=["-tidelog|follow"]
    )
    db, port = pair.follower(masteruser="ann", masterauth="pw")
    follower = pair.client(port)
    until(lambda: "NOPERM" in failure(follower))
    client.acl_setuser("ann", enabled=True, commands=["+tidelog|follow"])
    up(pair, port)


def test_a_chain_of_three(two: Two) -> None:
    pair, middle, port = two
    url = f"tidelog://127.0.0.1:{port}"
    with tidelog.follow(pair.root / "last", url, fsync="everysec") as last:
        pair.db.xadd("orders", {"n": 1})
        equal(pair.db, middle)
        equal(pair.db, last)
        pair.client(port).execute_command("REPLICAOF", "NO", "ONE")
        middle.xadd("orders", {"n": 2})
        equal(middle, last)


def test_a_store_that_is_open_read_only_ships_nothing(pair: Pair) -> None:
    with tidelog.open(pair.root / "leader", read_only=True) as looking:
        port = pair.serve(looking).port
        with pytest.raises(redis.ResponseError, match="open read-only"):
            pair.client(port).execute_command("REPLICAOF", "NO", "ONE")
        db = pair.open("other")
        other = pair.client(pair.serve(db, replicaof=f"127.0.0.1 {port}").port)
        until(lambda: "read-only" in failure(other))


def test_a_follower_that_reads_nothing_costs_little_memory(two: Two) -> None:
    pair, db, _ = two
    (link,) = pair.server.replicating.feeding.feeds
    pair.proxy.open.clear()
    row = {"pad": "x" * 10_000}
    for _ in range(3000):  # 30 MB
        pair.db.xadd("orders", row, maxlen=10)
    assert link.sink.unsent <= 1 << 20
    pair.proxy.open.set()
    equal(pair.db, db)


def test_a_frame_that_is_longer_than_a_message(two: Two) -> None:
    pair, db, _ = two
    pair.db.xadd("orders", {"pad": "x" * (5 << 20)})
    pair.db.xadd("orders", {"pad": "y"})
    equal(pair.db, db)


def test_garbage_behind_the_handshake_is_one_line_and_the_end(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 1})
    for garbage in (b"\xff" * 100, b"\x00" * 100, b"PING\r\n" * 100, b"\x10\x00\x00\x00\x63"):
        client = connect(pair.port)
        try:
            client.begin(
                *b"TIDELOG FOLLOW 1".split(), b"00" * 16, b"11" * 16, *b"0 0 00000000 -".split()
            )
            until(lambda: len(pair.server.replicating.feeding.feeds) == 1)
            client.raw(garbage)
            until(lambda: len(pair.server.replicating.feeding.feeds) == 0)
            assert b"broke the protocol" in client.rest()
        finally:
            client.close()


@pytest.mark.parametrize(
    "words",
    [
        "",
        "1",
        "2 a b c d e f",
        "1 x x x x x x",
        "1 {id} {id} 0 5 00000000 -",
        "1 {id} {id} 0 0 0 - and more",
    ],
)
def test_a_wrong_request_is_refused(pair: Pair, words: str) -> None:
    client = pair.client()
    given = words.format(id="22" * 16).split()
    with pytest.raises(redis.ResponseError):
        client.execute_command("TIDELOG", "FOLLOW", *given)
    assert client.ping()


def test_keyspace_events_of_a_follower(pair: Pair) -> None:
    db, port = pair.follower(notify_keyspace_events="KEA")
    up(pair, port)
    subscriber = pair.client(port).pubsub()
    subscriber.psubscribe("__key*__:*")
    assert subscriber.get_message(timeout=60)["type"] == "psubscribe"
    pair.db.xadd("orders", {"n": 1})
    assert subscriber.get_message(timeout=60)["data"] == b"xadd"
    subscriber.close()


def test_expired_keys_are_hidden_and_deleted_by_the_leader(two: Two) -> None:
    pair, db, port = two
    client, other = pair.client(), pair.client(port)
    client.set("k", "v", px=60)
    assert client.wait(1, 60_000) == 1
    until(lambda: other.get("k") is None)
    until(lambda: client.dbsize() == 0)
    equal(pair.db, db)
    assert other.dbsize() == 0


def test_a_follower_announces_where_clients_find_it(pair: Pair) -> None:
    _, port = pair.follower(replica_announce_ip="replica.example", replica_announce_port=7000)
    up(pair, port)
    shown = pair.client().info("replication")["slave0"]
    assert (shown["ip"], shown["port"]) == ("replica.example", 7000)
    with pytest.raises(redis.ResponseError, match="a host name or an IP address"):
        pair.client(port).config_set("replica-announce-ip", "two words")
