"""SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, SHUTDOWN, ROLE, REPLICAOF over sockets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from tests import inside
from tests.oracle.wire import Form, encode, error
from tests.server.checkpointed import folded
from tests.server.conftest import Running, Start
from tests.server.real_redis import Raw, real_redis
from tests.server.wire import calls, connect
from tests.until import until

import tidelog


@contextmanager
def held_fold(running: Running) -> Iterator[None]:
    """No checkpoint is finished within."""
    checkpoints: Any = inside.checkpoints(running.db)
    gate = checkpoints._one
    gate.acquire()
    try:
        yield
    finally:
        gate.release()


def ask(running: Running, *commands: str) -> list[Form]:
    with closing(connect(running.port)) as client:
        return calls(client, *commands)


def test_save_folds_what_was_written(server: Running) -> None:
    ask(server, "XADD a * x y")
    assert folded(server) == 0
    assert ask(server, "SAVE") == [("+", b"OK")]
    assert folded(server) == server.db.info()["next_lsn"] - 1


def test_others_go_on_during_a_save(server: Running) -> None:
    ask(server, "XADD a * x y")
    with closing(connect(server.port)) as saver:
        with held_fold(server):
            saver.begin(b"SAVE")
            until(lambda: server.server.saving._one.locked())
            assert ask(server, "XLEN a", "PING") == [1, ("+", b"PONG")]
            assert saver.arrived() == []
        assert saver.receive() == ("+", b"OK")


def test_saves_of_many_clients_take_one_thread(server: Running) -> None:
    ask(server, "XADD a * x y")
    clients = [connect(server.port) for _ in range(20)]
    with held_fold(server):
        for client in clients:
            client.begin(b"SAVE")
        until(lambda: sum(s.busy for s in list(server.server.sessions.values())) == len(clients))
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("tidelog-saving") == 1
    assert [client.receive() for client in clients] == [("+", b"OK")] * 20
    for client in clients:
        client.close()


def test_bgsave_answers_at_once_and_excludes_others(server: Running) -> None:
    ask(server, "XADD a * x y")
    with held_fold(server):
        assert ask(server, "BGSAVE") == [("+", b"Background saving started")]
        busy = error(b"ERR Background save already in progress")
        assert ask(server, "BGSAVE", "BGSAVE SCHEDULE", "SAVE") == [busy] * 3
        assert folded(server) == 0
        assert b"rdb_bgsave_in_progress:1" in ask(server, "INFO persistence")[0]
    until(lambda: not server.server.saving.running)
    assert folded(server) > 0


def test_a_rewrite_is_scheduled_behind_a_save_and_a_save_behind_a_rewrite(server: Running) -> None:
    scheduled = ("+", b"Background append only file rewriting scheduled")
    with held_fold(server):
        ask(server, "BGSAVE")
        assert ask(server, "BGREWRITEAOF", "BGREWRITEAOF") == [scheduled] * 2
    until(lambda: not server.server.saving.running)
    assert not server.server.saving.rewrite_scheduled
    with held_fold(server):
        started = ("+", b"Background append only file rewriting started")
        going = error(b"ERR Background append only file rewriting already in progress")
        assert ask(server, "BGREWRITEAOF", "BGREWRITEAOF") == [started, going]
        refused, later = ask(server, "BGSAVE", "BGSAVE SCHEDULE")
        assert refused[1].startswith(b"ERR Another child process is active (AOF?)")
        assert later == ("+", b"Background saving scheduled")
        assert server.server.saving.save_scheduled
    until(lambda: not server.server.saving.running)
    assert not server.server.saving.save_scheduled


def test_bgrewriteaof_folds_the_log(server: Running) -> None:
    ask(server, "XADD a * x y", "BGREWRITEAOF")
    until(lambda: folded(server) > 0)


def test_bgsave_in_a_transaction(server: Running) -> None:
    reply = ask(server, "MULTI", "XADD a 1-1 x y", "BGSAVE", "EXEC")[-1]
    assert reply == [b"1-1", ("+", b"Background saving started")]
    until(lambda: folded(server) > 0)


def test_bgsave_keeps_snapshots_where_their_number_is_bounded(start: Start) -> None:
    bounded, unbounded = start(keep_snapshots=2), start()
    for running in (bounded, unbounded):
        for number in range(1, 5):
            ask(running, f"XADD a {number}-1 x y", "BGSAVE")
            until(lambda: not running.server.saving.running)
            assert ask(running, "INFO persistence")[0].find(b"rdb_last_bgsave_status:ok") > 0
    kept = sorted(path for path in (bounded.root / "snapshots").iterdir() if path.name.isdigit())
    assert len(kept) == 2
    with tidelog.open(kept[-1], read_only=True) as snapshot:
        assert snapshot.xlen("a") == 4
    assert not (unbounded.root / "snapshots").exists()


def test_lastsave_is_of_the_last_one_that_went_well(server: Running) -> None:
    (before,) = ask(server, "LASTSAVE")
    assert abs(before - time.time()) < 60
    saving = server.server.saving
    saving._last_save -= 1000
    assert ask(server, "LASTSAVE") == [before - 1000]
    ask(server, "SAVE")  # there is nothing to fold: all is saved nevertheless
    assert ask(server, "LASTSAVE")[0] >= before
    saving._last_save -= 1000
    ask(server, "XADD a * x y")
    server.db.checkpoint()  # one that no client asked for
    assert ask(server, "LASTSAVE")[0] >= before


def test_a_failure_is_told_and_the_server_goes_on(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = inside.checkpoints(server.db)

    def fails() -> int:
        raise tidelog.CheckpointFailed("no room\r\nat all")

    (before,) = ask(server, "LASTSAVE")
    server.server.saving._last_save -= 1000
    monkeypatch.setattr(checkpoints, "fold", fails)
    assert ask(server, "SAVE") == [error(b"ERR no room  at all")]
    ask(server, "BGSAVE")
    until(lambda: "save" in server.server.saving.failed)
    assert ask(server, "LASTSAVE", "PING") == [before - 1000, ("+", b"PONG")]
    monkeypatch.undo()
    ask(server, "BGSAVE")
    until(lambda: not server.server.saving.running)
    assert server.server.saving.failed == {}


def test_a_client_that_leaves_during_its_save_leaves_nothing_behind(server: Running) -> None:
    ask(server, "XADD a * x y")
    with held_fold(server):
        with closing(connect(server.port)) as client:
            client.begin(b"SAVE")
            until(lambda: server.server.saving._one.locked())
        until(lambda: not server.server.sessions)
    assert ask(server, "SAVE") == [("+", b"OK")]


def test_what_cannot_be_queued(server: Running) -> None:
    refused = error(b"ERR Command not allowed inside a transaction")
    assert ask(server, "MULTI", "SAVE", "SHUTDOWN")[1:] == [refused] * 2


# --- SHUTDOWN


def test_shutdown_ends_the_server_without_a_reply_and_folds(start: Start) -> None:
    for options, folds in (("SAVE", True), ("NOSAVE NOW", False), ("", True)):
        running = start()
        ask(running, "XADD a * x y")
        with closing(connect(running.port)) as client:
            client.begin(b"SHUTDOWN", *options.encode().split())
            assert client.rest() == b""
        until(lambda: not running.serving._thread.is_alive())
        assert (folded(running) > 0) is folds
        with pytest.raises(ConnectionRefusedError):
            connect(running.port)


def test_shutdown_alone_folds_only_where_there_are_save_rules(start: Start) -> None:
    running = start(save=())
    ask(running, "XADD a * x y")
    with closing(connect(running.port)) as client:
        client.begin(b"SHUTDOWN")
        assert client.rest() == b""
    assert folded(running) == 0


def test_replies_before_it_arrive(start: Start) -> None:
    running = start(fsync="always")
    with closing(connect(running.port)) as client:
        client.send([[b"XADD", b"a", b"1-1", b"x", b"y"], [b"SHUTDOWN"]])
        assert client.rest() == b"$3\r\n1-1\r\n"


def test_shutdown_abort_while_it_is_folding(server: Running) -> None:
    ask(server, "XADD a * x y")
    assert ask(server, "SHUTDOWN ABORT") == [error(b"ERR No shutdown in progress.")]
    with closing(connect(server.port)) as client:
        with held_fold(server):
            client.begin(b"SHUTDOWN")
            until(lambda: server.server.saving._aborts)
            assert ask(server, "SHUTDOWN ABORT") == [("+", b"OK")]
            failed = error(b"ERR Errors trying to SHUTDOWN. Check logs.")
            assert client.receive() == failed
        assert calls(client, "PING", "SHUTDOWN ABORT") == [
            ("+", b"PONG"),
            error(b"ERR No shutdown in progress."),
        ]


def test_shutdown_that_cannot_save_needs_force(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise tidelog.CheckpointFailed("no room")

    monkeypatch.setattr(inside.checkpoints(server.db), "fold", fails)
    assert ask(server, "SHUTDOWN") == [error(b"ERR Errors trying to SHUTDOWN. Check logs.")]
    assert ask(server, "PING") == [("+", b"PONG")]
    with closing(connect(server.port)) as client:
        client.begin(b"SHUTDOWN", b"FORCE")
        assert client.rest() == b""


# --- what a leader says of itself


def test_role(server: Running) -> None:
    ask(server, "XADD a * x y")
    (role,) = ask(server, "ROLE")
    assert role == [b"master", server.db.info()["next_lsn"] - 1, []]
    assert ask(server, "REPLICAOF NO ONE", "slaveof no one") == [("+", b"OK")] * 2


# --- the texts of redis-server 7.0

SAME = (
    "SAVE x",
    "BGSAVE foo",
    "BGSAVE SCHEDULE x",
    "BGREWRITEAOF x",
    "LASTSAVE 1",
    "ROLE 1",
    "REPLICAOF NO ONE",
    "REPLICAOF localhost notaport",
    "REPLICAOF localhost 70000",
    "REPLICAOF localhost -1",
    "REPLICAOF NO ONEX",
    "REPLICAOF a",
    "SLAVEOF no one",
    "SHUTDOWN foo",
    "SHUTDOWN ABORT",
    "SHUTDOWN ABORT NOW",
    "SHUTDOWN SAVE NOSAVE",
    "SHUTDOWN NOW SAVE FORCE ABORT",
    "WAIT 0 0",
    "WAIT -1 0",
    "WAIT 1 a",
    "WAIT a 1",
    "WAIT a b",
    "WAIT 1 -1",
    "WAIT 0 -1",
    "WAIT 99999999999999999999 0",
    "WAIT 1",
    "DEBUG",
)


def test_errors_and_replies_are_those_of_redis(server: Running) -> None:
    with real_redis() as (oracle, _), Raw(oracle) as theirs, closing(connect(server.port)) as ours:
        for text in SAME:
            data = encode(text.encode().split())
            ours.raw(data)
            got = ours.receive()
            ours.raw(encode([b"PING"]))
            assert ours.receive() == ("+", b"PONG")
            expected = theirs.ask(data)
            assert _render(got) == expected, text


def _render(form: Form) -> bytes:
    if isinstance(form, int):
        return b":%d\r\n" % form
    kind, line = form
    return b"%b%b\r\n" % (kind.encode(), line)


def test_a_checkpoint_is_an_event_that_is_logged(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tidelog"):
        ask(server, "XADD s 1-1 a b", "SAVE", "SAVE")  # the second one has nothing to fold
    told = [r.getMessage() for r in caplog.records if "checkpoint" in r.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"checkpoint of {server.root}: LSN {folded(server)}, in 0.")
