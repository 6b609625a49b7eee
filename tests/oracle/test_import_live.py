"""tidelog import of a running redis-server: key by key, as its replica, and while eight writers go on."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.oracle.appending import Appending, Ended
from tests.oracle.server import SEVEN, Release
from tests.oracle.test_import import (
    Kind,
    Views,
    agree,
    both_releases,
    history,
    imported,
    kind,
    place,
    views,
)
from tests.oracle.wire import Connection
from tests.rounds import some_and_all, some_slow_and_soak
from tests.server.ports import free_port

from tidelog.tools import cli, exits
from tidelog.tools.importing import from_server
from tidelog.tools.importing import link as importing_link

__all__ = ["kind", "place"]  # fixtures


@contextmanager
def served(
    place: Path, release: Release = SEVEN, **options: str
) -> Iterator[tuple[Appending, str]]:
    """A running server without data, and its URL."""
    while True:
        port = free_port()
        listening = {"port": f"{port}", "bind": "127.0.0.1", "repl_diskless_sync": "no"}
        try:
            server = Appending(place, release, **{"appendonly": "no", **listening, **options})
        except Ended as ended:
            assert "Address already in use" in str(ended), ended
        else:
            break
    try:
        yield server, f"redis://127.0.0.1:{port}"
    finally:
        server.kill()


def fill(link: Connection, seed: int, turns: int = 150, kind: Kind | None = None) -> None:
    for args in history(seed, turns, *([] if kind is None else [kind.grammar])):
        link.call(*args)
    link.call(b"SELECT", b"0")
    link.call(b"RPUSH", b"list", b"a", b"b")
    link.call(b"SET", b"until", b"x", b"PXAT", b"4000000000000")


def without_lists(found: Views) -> Views:
    return {at: form for at, form in found.items() if at != (0, b"list")}


@pytest.mark.parametrize("by", ["dump", "psync"])
def test_all_replies_are_equal(
    place: Path, tmp_path: Path, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(place) as (server, url):
        link = server.connect()
        fill(link, 5)
        theirs = without_lists(views(link))
        ours = imported(tmp_path / "t", url, "--by", by)
        told = capsys.readouterr().out
        link.close()
    if by == "dump":  # its expiries are told as times that are left
        for found in (ours, theirs):
            assert abs(found[0, b"until"][1] - 4_000_000_000_000) < 60_000
            found[0, b"until"] = None
    agree(ours, theirs)
    assert "list     1" in told


@both_releases
@pytest.mark.parametrize("by", ["dump", "psync"])
@pytest.mark.parametrize(
    "seeds", some_slow_and_soak(range(4), range(1000, 1125), range(10_000, 11_000))
)
def test_random_states_are_equal(
    place: Path, tmp_path: Path, kind: Kind, by: str, seeds: range
) -> None:
    with served(place, kind.release, hz="500") as (server, url):
        link = server.connect()
        for seed in seeds:
            link.call(b"SELECT", b"0")
            link.call(b"FLUSHALL")
            fill(link, seed, 60, kind)
            theirs = without_lists(views(link))
            target = tmp_path / f"{seed}"
            ours = imported(target, url, "--by", by, owes=kind.owes, times=True)
            if by == "dump":  # its expiries are told as times that are left
                for found in (ours, theirs):
                    for form in found.values():
                        form[1] = form[1] if form[1] == -1 else round(form[1], -7)
            agree(ours, theirs, f"seed {seed}")
        link.close()


@both_releases
@pytest.mark.parametrize("rounds", some_and_all(1, 10))
def test_the_cut_over_while_eight_write(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, rounds: int
) -> None:
    """The import begins while eight clients write, and ends when they have stopped and it has everything."""
    for number in range(rounds):
        folder = place / f"{number}"
        folder.mkdir()
        with monkeypatch.context() as patched:
            cut_over(folder, tmp_path / f"{number}", patched, kind, number)


def load(link: Connection, r: random.Random, name: bytes) -> None:
    """One turn of a writer: entries come and are read, acknowledged, claimed, deleted and trimmed, also in MULTI."""
    added = [link.call(b"XADD", b"load", b"*", b"n", b"%d" % r.randrange(1000))]
    reader = [b"XREADGROUP", b"GROUP", b"g", name, b"COUNT", b"2", b"STREAMS", b"load", b">"]
    read = link.call(*reader)
    ids = [row[0] for row in read[0][1]] if isinstance(read, list) and read else added
    way = r.randrange(10)
    if way < 5:
        link.call(b"XACK", b"load", b"g", ids[0])
    elif way == 5:
        link.call(b"XAUTOCLAIM", b"load", b"g", name, b"0", b"-", b"COUNT", b"3")
    elif way == 6:
        again = [b"RETRYCOUNT", b"%d" % r.randrange(9), b"FORCE"]
        link.call(b"XCLAIM", b"load", b"g", b"spare-" + name, b"0", *ids, *again)
    elif way == 7:
        link.call(b"XDEL", b"load", r.choice([*ids, *added]))
    elif way == 8:
        exactly = r.choice((b"=", b"~"))
        link.call(b"XTRIM", b"load", b"MAXLEN", exactly, b"%d" % r.randrange(100, 400))
    else:
        for command in (
            [b"MULTI"],
            [b"XADD", b"load", b"*", b"in", b"a unit"],
            reader,
            [b"XACK", b"load", b"g", *ids],
            [b"XDEL", b"load", *added],
            [b"INCR", b"units"],
            [b"EXEC"],
        ):
            assert link.call(*command)


def cut_over(
    place: Path, target: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, seed: int
) -> None:
    with served(place, kind.release) as (server, url):
        link = server.connect()
        fill(link, 6 + seed, kind=kind)
        link.call(b"FLUSHDB")
        link.call(b"XGROUP", b"CREATE", b"load", b"g", b"0", b"MKSTREAM")
        started = threading.Barrier(9)
        writers: list[threading.Thread] = []
        has_all = from_server._Following._has_all

        def has_all_of_all(following: from_server._Following) -> bool:
            return not any(writer.is_alive() for writer in writers) and has_all(following)

        monkeypatch.setattr(from_server._Following, "_has_all", has_all_of_all)

        def write(number: int) -> None:
            mine = server.connect()
            r = random.Random(100 * seed + number)
            for count in range(200):
                load(mine, r, b"worker-%d" % number)
                mine.call(b"INCR", b"total")
                if count == 5:
                    started.wait()
            mine.close()

        writers += [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for writer in writers:
            writer.start()
        started.wait()
        ours = imported(target, url, "--until-caught-up", owes=kind.owes)
        for writer in writers:
            writer.join()
        theirs = views(link)
        link.close()
    assert ours[0, b"total"][0] == b"1600"
    agree(ours, without_lists(theirs))


def test_with_a_password(
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(place, requirepass="secret") as (server, url):
        for by in ("dump", "psync"):
            assert cli.run(["import", str(tmp_path / by), url, "--by", by]) == exits.REFUSED
            told = capsys.readouterr()
            assert (told.out, told.err.count("\n"), "NOAUTH" in told.err) == ("", 1, True)
        wrong = url.replace("redis://", "redis://:guess@")
        assert cli.run(["import", str(tmp_path / "w"), wrong]) == exits.REFUSED
        said = capsys.readouterr().err
        assert (said.count("\n"), "refused AUTH" in said, "guess" in said) == (1, True, False)
        monkeypatch.setattr(importing_link, "CONNECT_S", 0.2)
        tls = url.replace("redis://", "rediss://")  # of a server without TLS
        assert cli.run(["import", str(tmp_path / "w"), tls]) == exits.SYSTEM
        assert capsys.readouterr().err.count("\n") == 1
        monkeypatch.undo()
        signed = url.replace("redis://", "redis://:secret@")
        assert cli.run(["import", str(tmp_path / "t"), signed]) == 0
        assert "secret" not in capsys.readouterr().out


def test_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    assert cli.run(["import", str(tmp_path / "t"), url]) == exits.SYSTEM
    assert capsys.readouterr().err.count("\n") == 1


INFO = b"$19\r\ndb0:keys=1,expires=\r\n"
ONE_KEY = INFO + b"+OK\r\n*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n"


def answering(reply: bytes) -> tuple[str, threading.Thread]:
    """A server that answers every read with these bytes, and says no more."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening:
            link, _ = listening.accept()
            with link:
                link.recv(4096)
                link.sendall(reply)
                link.shutdown(socket.SHUT_WR)
                while link.recv(4096):  # a close before the client's would reset the connection
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    return f"redis://127.0.0.1:{listening.getsockname()[1]}", thread


# fmt: off
@pytest.mark.parametrize(("reply", "code", "said"), [
    (b"", exits.SYSTEM, "closed the connection"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", exits.REFUSED, "does not answer as a Redis does"),
    (b"+OK\r\n-ERR unknown command\r\n", exits.REFUSED, "Use --by dump"),
    (b"+OK\r\n+CONTINUE\r\n", exits.REFUSED, "Use --by dump"),
    (b"+OK\r\n+FULLRESYNC abc 5\r\n\n$EOF:" + b"x" * 40 + b"\r\n", exits.REFUSED, "no dump file of a stated length"),
    (b"+OK\r\n+FULLRESYNC abc 5\r\n$100\r\nREDIS0011", exits.SYSTEM, "closed the connection"),
    (b"+OK\r\n+FULLRESYNC abc 5\r\n$9\r\nREDIS0099", exits.NEWER, "the format has version 99"),
    (b"+OK\r\n+FULLRESYNC abc 5\r\n$9\r\nnonsense!", exits.DAMAGED, "an RDB file begins with REDIS"),
])
# fmt: on
def test_servers_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reply: bytes, code: int, said: str
) -> None:
    url, thread = answering(reply)
    assert cli.run(["import", str(tmp_path / "t"), url]) == code
    told = capsys.readouterr().err
    thread.join()
    assert (told.count("\n"), said in told) == (1, True), told
    assert os.listdir(tmp_path / "t") == ["LOCK"]


# fmt: off
@pytest.mark.parametrize("reply", [
    b"*1000000000\r\n", b":5\r\n", b"$-1\r\n", b"*-1\r\n", b"$1073741825\r\n", b"$-7x\r\n", b"*1\r\n" * 20,
    INFO, INFO + b"+OK\r\n:5\r\n", INFO + b"+OK\r\n*2\r\n:0\r\n*0\r\n", INFO + b"+OK\r\n*2\r\n$1\r\n0\r\n:1\r\n",
    ONE_KEY + b"+str", ONE_KEY + b"+stream\r\n:5\r\n:1\r\n", ONE_KEY + b"+stream\r\n$1\r\nx\r\n$-1\r\n",
    ONE_KEY + b"+stream\r\n$4\r\nlies\r\n:-1\r\n",
])
# fmt: on
def test_servers_that_lie_to_scan_and_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reply: bytes
) -> None:
    url, thread = answering(reply)
    code = cli.run(["import", str(tmp_path / "t"), url, "--by", "dump"])
    assert code in (exits.REFUSED, exits.SYSTEM, exits.DAMAGED)
    thread.join()
    assert capsys.readouterr().err.count("\n") == 1
    assert os.listdir(tmp_path / "t") == ["LOCK"]


@pytest.mark.parametrize("by", ["dump", "psync"])
def test_a_server_that_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(from_server, "Link", partial(importing_link.Link, timeout=0.1))
    with socket.create_server(("127.0.0.1", 0)) as listening:  # it never accepts
        url = f"redis://127.0.0.1:{listening.getsockname()[1]}"
        assert cli.run(["import", str(tmp_path / "t"), url, "--by", by]) == exits.SYSTEM
    told = capsys.readouterr().err
    assert (told.count("\n"), "sent nothing for 0.1 s" in told) == (1, True), told
    assert os.listdir(tmp_path / "t") == ["LOCK"]


@pytest.mark.parametrize(
    "options",
    [["a.rdb", "--follow"], ["redis://x", "--by", "dump", "--follow"], ["redis://x", "--dry-run", "--follow"]],
)
def test_options_that_do_not_go_together(tmp_path: Path, options: list[str]) -> None:
    assert cli.run(["import", str(tmp_path / "t"), *options]) == exits.USAGE


def test_ctrl_c_ends_following(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes while the import waits for more; the store is complete."""
    with served(place) as (server, url):
        link = server.connect()
        fill(link, 8)
        acknowledge = from_server._Following._acknowledge
        sent: list[bytes] = []
        before = signal.getsignal(signal.SIGINT)

        def interrupted(following: from_server._Following) -> None:
            acknowledge(following)
            if not sent:  # the first one: the dump is taken, and no command yet
                sent.append(link.call(b"XADD", b"late", b"5-5", b"f", b"v"))
            elif following._whole:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(from_server._Following, "_acknowledge", interrupted)
        monkeypatch.setattr(from_server, "ACK_S", 0.1)
        ours = imported(tmp_path / "t", url, "--follow")
        theirs = views(link)
        link.close()
    assert sent == [b"5-5"]
    agree(ours, without_lists(theirs))
    assert signal.getsignal(signal.SIGINT) is before
