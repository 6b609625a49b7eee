"""tidelog replica status"""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run, expect
from tests.tools.made import Made
from tests.until import until

import tidelog
from tidelog.aof import identity
from tidelog.aof.rewind import rewind
from tidelog.aof.seek import position_after
from tidelog.aof.surplus import REPORT, surplus_behind
from tidelog.disk.real import RealDisk
from tidelog.store import role
from tidelog.tools import exits
from tidelog.tools.replica.status import reached


def settled(text: str, ports: dict[int, str]) -> str:
    """The text without what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "HEX", text)
    for port, name in ports.items():
        text = re.sub(rf"\b127\.0\.0\.1:{port}\b", name, text)
    text = re.sub(r"\b\d+\.\d s\b", "SECONDS", text)
    text = re.sub(r" +\d+\.\d +\d+\.\d$", "  SECONDS  SECONDS", text, flags=re.M)
    text = re.sub(r"(?<=\S) {2,}(?=FOLLOWER|STATE|\S+ +WRITTEN|online)", "  ", text)
    text = re.sub(r"\d[\d.]* [KM]iB$", "SIZE", text, flags=re.M)
    return re.sub(r'((?:_seconds|log_bytes)": )[0-9.]+', r"\1NUMBER", text)


def aside(root: Path, first: int) -> None:
    """Set aside what a store has from this LSN on, as a follower does."""
    disk, log = RealDisk(), root / identity.AOF
    uuid = identity.read(disk, root)
    at = position_after(disk, log, uuid, first - 1)
    assert at is not None
    directory = root / identity.QUARANTINE / f"{first:020d}.0123456789abcdef"
    directory.mkdir(parents=True)
    (directory / REPORT).write_bytes(surplus_behind(disk, log, uuid, at).report(at, "10.0.0.1 1"))
    rewind(disk, root, uuid, at, directory)


def test_the_files_of_a_leader(run: Run, made: Made) -> None:
    done = run("replica", "status", made.root)
    assert (done.code, done.err) == (0, "")
    expect("replica-status-files.txt", done.out, made.root)
    expect(
        "replica-status-files.json", run("replica", "status", made.root, "--json").out, made.root
    )


def test_the_files_of_a_follower(run: Run, made: Made) -> None:
    aside(made.root, 4)
    (made.root / identity.QUARANTINE / "store.00000000000000000009.1").mkdir()
    changed = made.root / identity.QUARANTINE / "00000000000000000009.0123456789abcdef"
    changed.mkdir()
    (changed / REPORT).write_text('{"records": 1}')
    follows = role.Role("follower", "ab" * 16, "10.0.0.1", 6379, 0, "followed by REPLICAOF")
    role.publish(RealDisk(), made.root, follows)
    done = run("replica", "status", made.root)
    assert (done.code, done.err) == (0, "")
    expect("replica-status-follower.txt", done.out, made.root)


def test_a_store_that_hands_over(run: Run, made: Made) -> None:
    told = role.Role("handing over", "ab" * 16, "10.0.0.2", 6379, 0, "by FAILOVER", "cd" * 16)
    role.publish(RealDisk(), made.root, told)
    done = run("replica", "status", made.root)
    assert "role         handing over to 10.0.0.2:6379 (by FAILOVER)\n" in done.out


def told(run: Run, url: str) -> Any:
    """The facts that a server gives a program."""
    return json.loads(run("replica", "status", url, "--json").out)


def test_servers(run: Run, tmp_path: Path) -> None:
    with ExitStack() as stack:

        def served(name: str, **options: Any) -> tuple[tidelog.Store, tidelog.Serving, str]:
            db = stack.enter_context(tidelog.open(tmp_path / name))
            serving = stack.enter_context(tidelog.serve(db, port=0, **options))
            return db, serving, f"redis://127.0.0.1:{serving.port}"

        leader, upstream, url = served("a")
        follow = {"replicaof": f"127.0.0.1 {upstream.port}"}
        _, one, first = served("b", **follow)
        ports = {upstream.port: "LEADER", one.port: "ONE"}
        leader.xadd("orders", {"n": 1})
        until(lambda: [each["fsynced_lsn"] for each in told(run, url)["followers"]] == [2])
        expect(
            "replica-status-leader.txt", settled(run("replica", "status", url).out, ports), tmp_path
        )
        shown = run("replica", "status", url, "--json").out
        expect("replica-status-leader.json", settled(shown, ports), tmp_path)
        by_path = run("replica", "status", tmp_path / "a").out  # the server is asked on its socket
        assert by_path.startswith(f"place        {tmp_path / 'a'}\n") and " online " in by_path
        _, two, second = served("c", **follow)
        ports[two.port] = "TWO"
        until(lambda: told(run, second)["last_lsn"] == 2)
        until(lambda: told(run, first)["link"]["up"] and told(run, second)["link"]["up"])
        upstream.close()
        until(lambda: told(run, first)["link"]["failure"] and told(run, second)["link"]["failure"])
        done = run("replica", "status", first, second)
        text = settled(re.sub(r"for \d.*", "for SECONDS: WHY", done.out), ports)
        expect("replica-status-two.txt", text, tmp_path)


def test_a_follower_is_promoted(run: Run, tmp_path: Path) -> None:
    with ExitStack() as stack:

        def served(name: str, **options: Any) -> tuple[tidelog.Store, str]:
            db = stack.enter_context(tidelog.open(tmp_path / name))
            serving = stack.enter_context(tidelog.serve(db, port=0, **options))
            return db, f"127.0.0.1 {serving.port}"

        leader, old = served("a")
        leader.xadd("orders", {"n": 1})
        for name, more in ("b", ()), ("c", ("--json",)):
            db, at = served(name, replicaof=old)
            until(partial(db.exists, "orders"))
            place: Any = f"redis://{at.replace(' ', ':')}" if more else tmp_path / name
            done = run("replica", "promote", place, *more)
            assert (done.code, done.err, db.role().kind) == (exits.OK, "", "leader")
            db.xadd("orders", {"n": 2})
            address = old.replace(" ", ":")
            if more:
                assert json.loads(done.out) == {
                    **{"place": at.replace(" ", ":"), "role": "leader", "promoted": True},
                    **{"generation": 1, "old_leader": address},
                }
            else:
                assert done.out == (
                    f"{place} leads now: generation 1\n"
                    f"If {address} runs, it takes writes, too: stop it, or cut it off from its clients. When it is "
                    "back, let it follow: REPLICAOF HOST PORT, or tidelog serve --replicaof HOST PORT\n"
                )
        done = run("replica", "promote", tmp_path / "a")
        assert done.out == f"{tmp_path / 'a'} leads already: generation 0\n"


def test_a_closed_follower_is_promoted(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "data"
    tidelog.open(root).close()
    role.publish(RealDisk(), root, role.Role("follower", "ab" * 16, "10.0.0.1", 6379))
    with tidelog.open(root):
        done = run("replica", "promote", root)
        assert done.code == exits.LOCKED and "call db.promote() in it" in done.err
    done = run("replica", "promote", root)
    assert (done.code, done.err) == (exits.OK, "") and "leads now: generation 1" in done.out
    assert json.loads(run("replica", "promote", root, "--json").out) == {
        **{"place": str(root), "role": "leader", "promoted": False},
        **{"generation": 1, "old_leader": None},
    }
    with tidelog.open(root) as db:
        db.xadd("orders", {"n": 1})
    assert run("replica", "promote", tmp_path / "nothing").code == exits.NOT_A_STORE
    assert not (tmp_path / "nothing").exists()


def test_a_follower_that_lags_is_not_the_furthest(run: Run, tmp_path: Path) -> None:
    """Two copies of one store, and one of them goes on."""
    ahead, behind = tmp_path / "ahead", tmp_path / "behind"
    with tidelog.open(ahead) as db:
        db.xadd("orders", {"n": 1})
    shutil.copytree(ahead, behind)
    with tidelog.open(ahead) as db:
        db.xadd("orders", {"n": 2})
    for root in (ahead, behind):
        role.publish(RealDisk(), root, role.Role("follower", "ab" * 16, "10.0.0.1", 6379))
    done = run("replica", "status", behind, ahead)
    assert done.out.splitlines()[-1] == f"furthest     {ahead}: LSN 4 of generation 0"
    with tidelog.open(tmp_path / "other"):
        role.publish(
            RealDisk(), tmp_path / "other", role.Role("follower", "cd" * 16, "10.0.0.1", 6379)
        )
    done = run("replica", "status", tmp_path / "other", ahead)
    assert done.out.splitlines()[-1] == "they follow different stores"


def test_a_later_life_is_further_than_a_higher_lsn() -> None:
    behind = {"generation": 1, "life": 0, "last_lsn": 10}
    ahead = {"generation": 0, "life": 7, "last_lsn": 99}
    assert max((ahead, behind), key=reached) is behind


def test_what_cannot_be_asked(run: Run, made: Made, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    done = run("replica", "status", f"redis://127.0.0.1:{port}")
    assert (done.code, done.out) == (exits.SYSTEM, "")
    assert done.err == f"tidelog: 127.0.0.1:{port}: connection refused\n"
    done = run("replica", "status", tmp_path / "nothing")
    assert (done.code, done.out) == (exits.NOT_A_STORE, "") and done.err.count("\n") == 1
    for url, why in {
        "http://127.0.0.1": "the scheme of a URL must be one of",
        "redis://": "names no host",
        "redis://h:99999": "no valid host and port",
        "redis://h/x": "the database must be a number",
        "redis://h?x=1": "has no option x",
        "redis+sentinel://h/orders": "give the address of one server",
    }.items():
        done = run("replica", "status", url)
        assert (done.code, done.out) == (exits.USAGE, "") and why in done.err, done
    done = run("replica", "verify", made.root, "--leader", "127.0.0.1:1")
    assert (done.code, "give the URL of a server" in done.err) == (exits.USAGE, True)
    with (
        tidelog.open(tmp_path / "data") as db,
        tidelog.serve(db, port=0, requirepass="pw") as server,
    ):
        at = f"127.0.0.1:{server.port}"
        done = run("replica", "status", f"redis://{at}")
        assert (done.code, done.err) == (
            exits.REFUSED,
            f"tidelog: {at} refused: NOAUTH Authentication required.\n",
        )
        done = run("replica", "status", f"redis://ann:wrong@{at}")
        assert done.code == exits.REFUSED and "WRONGPASS" in done.err and "wrong@" not in done.err
        assert run("replica", "status", f"redis://:pw@{at}").code == exits.OK
        with tidelog.open(tmp_path / "data", read_only=True) as reader:
            with tidelog.serve(reader, port=0) as other:
                done = run("replica", "status", f"redis://127.0.0.1:{other.port}")
                assert done.code == exits.REFUSED and "ask the server of its writer" in done.err


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            b"",
            "closed the connection before it answered; if that port is for TLS, use rediss:// in the URL",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n", "gave no answer of a tidelog server"),
        (b"-ERR unknown command 'TIDELOG'\r\n", "refused: ERR unknown command 'TIDELOG'"),
        (b"$99999999999\r\n", "gave no answer of a tidelog server"),
        (b"$5\r\nab", "gave no answer of a tidelog server"),
        (b"$2\r\n[]\r\n", "gave no answer of a tidelog server"),
        (b"+OK\r\n", "gave no answer of a tidelog server"),
    ],
)
def test_strangers(run: Run, answer: bytes, error: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def stranger() -> None:
            link, _ = listening.accept()
            with link:
                link.recv(100)
                link.sendall(answer)
                link.shutdown(socket.SHUT_WR)
                link.recv(100)

        answering = threading.Thread(target=stranger)
        answering.start()
        at = f"127.0.0.1:{listening.getsockname()[1]}"
        done = run("replica", "status", f"redis://{at}")
        answering.join(60)
    assert (done.out, done.err) == ("", f"tidelog: {at} {error}\n")
