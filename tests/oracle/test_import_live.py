"""tidelog import of a running redis-server 7.0: key by key, as its replica, and while eight writers go on."""

from __future__ import annotations

import random
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.oracle.appending import Appending
from tests.oracle.test_import import agree, history, imported, place, views
from tests.oracle.wire import Connection
from tests.server.ports import free_port

from tidelog.tools import cli, exits
from tidelog.tools.importing import from_server
from tidelog.tools.importing import link as importing_link

__all__ = ["place"]  # a fixture


@contextmanager
def served(place: Path, **options: str) -> Iterator[tuple[Appending, str]]:
    """A running server with random data, and its URL."""
    port = free_port()
    server = Appending(
        place, appendonly="no", port=f"{port}", bind="127.0.0.1", repl_diskless_sync="no", **options
    )
    try:
        yield server, f"redis://127.0.0.1:{port}"
    finally:
        server.kill()


def fill(link: Connection, seed: int) -> None:
    for args in history(seed, 150):
        if args[0].upper() not in (b"CONFIG", b"DEBUG"):
            link.call(*args)
    link.call(b"SELECT", b"0")
    link.call(b"RPUSH", b"list", b"a", b"b")
    link.call(b"SET", b"until", b"x", b"PXAT", b"4000000000000")


def without_lists(found: dict[tuple[int, bytes], object]) -> dict[tuple[int, bytes], object]:
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
            assert abs(found[0, b"until"][1] - 4_000_000_000_000) < 60_000  # type: ignore[index]
            found[0, b"until"] = None
    agree(ours, theirs)
    assert "list     1" in told


def test_the_cut_over_while_eight_write(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import begins while eight clients write, and ends when they have stopped and it has everything."""
    with served(place) as (server, url):
        link = server.connect()
        fill(link, 6)
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
            r = random.Random(number)
            for count in range(200):
                mine.call(b"XADD", b"load", b"*", b"n", b"%d" % r.randrange(1000))
                name = b"worker-%d" % number
                read = mine.call(
                    b"XREADGROUP", b"GROUP", b"g", name, b"COUNT", b"2", b"STREAMS", b"load", b">"
                )
                if isinstance(read, list) and r.random() < 0.6:
                    mine.call(b"XACK", b"load", b"g", read[0][1][0][0])
                mine.call(b"INCR", b"total")
                if count == 5:
                    started.wait()
            mine.close()

        writers += [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for writer in writers:
            writer.start()
        started.wait()
        ours = imported(tmp_path / "t", url, "--until-caught-up")
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
