"""Handover: `tidelog serve` takes a store over from the owner that clients started, and their calls go on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.client.conftest import Bench
from tests.client.owners import is_running, kill, owner_of, owners, served
from tests.until import until

import tidelog
from tidelog.aof.layout import SHARED
from tidelog.client import takeover
from tidelog.disk.process import environment
from tidelog.jobs.rows import VALUE
from tidelog.resp.commands import encoded
from tidelog.server.config.stored import Stored


def say(root: Path, *lines: str) -> None:
    Stored(root).update(lambda data: "".join(f"{line}\n" for line in lines))


@pytest.fixture
def remembered(root: Path) -> Path:
    """A store that is served on its own socket only, by an owner or by an operator."""
    say(root, "hz = 20")
    return root


class Client:
    """A client of its own that puts numbers, and takes jobs; it notes what it was told."""

    def __init__(
        self, root: Path, name: str, *, plain: bool = False, queue: str = "jobs", codec: str = "str"
    ):
        self.name, self._plain, self._queue, self._codec = name, plain, queue, codec
        self.put: list[str] = []
        self.error: BaseException | None = None
        self.over = threading.Event()
        self._root = root
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with tidelog.connect(self._root, timeout=120) as db:
                queue = db.queue(self._queue, codec=self._codec)
                while not self.over.is_set():
                    value = f"{self.name}-{len(self.put)}"
                    if self._plain and len(self.put) % 3 == 0:
                        with db.pipeline(
                            transaction=False
                        ) as pipe:  # a call that is never repeated in doubt
                            pipe.xadd("plain", {"value": value})
                            pipe.execute()
                        queue.put(value)
                    else:
                        queue.put(value)
                    self.put.append(value)
        except BaseException as error:
            self.error = error

    def end(self) -> list[str]:
        self.over.set()
        self._thread.join(180)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.put


def values_of(root: Path) -> list[str]:
    """The values of all jobs, from the entries of the queue."""
    with tidelog.connect(root) as db:
        return [fields[VALUE].decode() for _, fields in db.xrange("jobs")]


def test_serve_takes_over(remembered: Path) -> None:
    """Calls under way are answered, a blocked take goes on, and calls that are never repeated go on too."""
    root = remembered
    got: list[Any] = []
    with ExitStack() as stack:
        db = stack.enter_context(tidelog.connect(root, timeout=120))
        waiting = stack.enter_context(tidelog.connect(root, timeout=120))
        reading = threading.Thread(
            target=lambda: got.append(waiting.queue("late", codec="str").get("w", block=60))
        )
        reading.start()
        db.xgroup_create("s", "g", mkstream=True)
        blocked = stack.enter_context(tidelog.connect(root, timeout=120))
        reader = threading.Thread(
            target=lambda: got.append(blocked.xreadgroup("g", "c", {"s": ">"}, block=60_000))
        )
        reader.start()
        until(lambda: int(db.info()["blocked_clients"]) == 2, "they do not wait")
        clients = [Client(root, f"c{n}", plain=True) for n in range(3)]
        until(lambda: all(client.put or client.error for client in clients), "they do not put")
        owner = owner_of(root)
        with served(root):
            until(lambda: not is_running(owner), "the owner does not end")
            assert not owners(root)
            assert db.config_get("hz")["hz"] == "20"
            many = [len(client.put) for client in clients]
            until(
                lambda: all(
                    client.error or len(client.put) > n
                    for client, n in zip(clients, many, strict=True)
                ),
                "they do not go on",
            )
            db.queue("late", codec="str").put("here")
            db.xadd("s", {"a": "1"})
            for thread in (reading, reader):
                thread.join(60)
            assert len(got) == 2
            put = [value for client in clients for value in client.end()]
            assert sorted(values_of(root)) == sorted(put)
            pipes = [fields[b"value"] for _, fields in db.xrange("plain")]
            assert len(pipes) == len({*pipes})


def test_in_turns(remembered: Path) -> None:
    rounds(remembered, 3, 4)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_in_turns_for_long(remembered: Path) -> None:
    rounds(remembered, 100, 20)


def rounds(root: Path, count: int, crowd: int) -> None:
    """Restart, kill -9 and handover by turns, with new clients under load: no error, no put is lost or done twice."""
    put: list[str] = []
    for number in range(count):
        clients = [Client(root, f"{number}-{each}") for each in range(crowd)]
        until(lambda: any(c.put or c.error for c in clients), "nobody puts")  # noqa: B023
        with served(root) as process:  # from the owner
            seen = max(len(client.put) for client in clients)
            until(
                lambda: any(c.error or len(c.put) > seen for c in clients),  # noqa: B023
                "nobody puts after the handover",
            )
            process.send_signal((signal.SIGKILL, signal.SIGTERM)[number % 2])
            process.wait()
        later = Client(root, f"{number}-later")
        until(lambda: later.put or later.error, "nobody puts after the end")  # noqa: B023
        if number % 3 == 2:
            kill(root)
        for client in (*clients, later):
            put += client.end()
        with tidelog.connect(root, timeout=120) as db:
            assert db.config_get("hz")["hz"] == "20"
    assert sorted(values_of(root)) == sorted(put)


def test_the_new_one_dies_midway(remembered: Path) -> None:
    with tidelog.connect(remembered) as db:
        db.set("a", "1")
        owner = owner_of(remembered)
        passed = takeover.ask(remembered)
        assert passed is not None
        passed.close()
        # The owner may answer a call before it ends.
        until(lambda: db.get("a") == b"1" and owner_of(remembered) != owner, "it does not end")


def test_the_old_one_dies_midway(remembered: Path) -> None:
    with tidelog.connect(remembered) as db:
        db.set("a", "1")
        passed = takeover.ask(remembered)
        assert passed is not None
        with passed:
            try:
                os.kill(owner_of(remembered), signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended already
        assert db.get("a") == b"1"
        with served(remembered):
            assert db.get("a") == b"1"


def test_an_owner_of_an_earlier_version_is_ended(
    remembered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know the command."""
    monkeypatch.setattr(takeover, "encoded", lambda words: encoded((b"TIDELOG", b"NEVER")))
    with tidelog.connect(remembered):
        owner = owner_of(remembered)
        assert takeover.ask(remembered) is None
        until(lambda: not is_running(owner), "it goes on")


def test_a_client_that_does_not_know(remembered: Path) -> None:
    """A blocked read ends as if it was late, and the connection is closed."""
    with tidelog.connect(remembered) as db, socket.socket(socket.AF_UNIX) as other:
        other.connect(str(remembered / SHARED))
        other.sendall(encoded((b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$")))
        until(lambda: int(db.info()["blocked_clients"]) == 1, "it does not wait")
        passed = takeover.ask(remembered)
        assert passed is not None
        passed.close()
        other.settimeout(60)
        assert other.recv(100) == b"*-1\r\n" and other.recv(100) == b""


def test_a_user_who_may_not_hand_over(remembered: Path) -> None:
    """Connections are made as ever, with all that the server can."""
    with tidelog.connect(remembered) as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-tidelog|handover")
        with tidelog.connect(remembered) as db:
            queue = db.queue("jobs", codec="str")
            queue.put("a", dedup_id="1", dedup="until-done")
            job = queue.get(block=0)
            assert job is not None and job.ack()
            # The error tells that the rule holds: without it, this process would be refused for another reason.
            with pytest.raises(tidelog.ResponseError, match="NOPERM|no permissions"):
                db.execute_command("TIDELOG", "HANDOVER", "KNOWN")


def test_only_an_owner_hands_over(bench: Bench) -> None:
    client: Any = redis.Redis(unix_socket_path=str(bench.root / SHARED))
    with (
        client,
        pytest.raises(redis.ResponseError, match="an operator or a program has started it"),
    ):
        client.execute_command("TIDELOG", "HANDOVER")
    for words in (("NOW",), ("KNOWN", "NOW")):
        with client, pytest.raises(redis.ResponseError, match="syntax error"):
            client.execute_command("TIDELOG", "HANDOVER", *words)


def test_a_store_for_an_operator(root: Path) -> None:
    """Clients start nothing; they wait, and say for whom."""
    say(root, "replicate-before-reply = 1", "replicate-timeout = 1")
    with pytest.raises(tidelog.Unreachable) as caught:
        tidelog.connect(root, timeout=0.3)
    assert "Only an operator starts the server of this store, as its tidelog.toml says" in str(
        caught.value
    )
    assert f"run `tidelog serve {root}`" in str(caught.value)
    assert not owners(root) and not (root / "STORE").exists()
    say(root, 'started = "by-clients"', "min-replicas-to-write = 1")
    with tidelog.connect(root) as db:
        assert db.config_get("started")["started"] == "by-clients"
        say(root, 'started = "by-operator"')
        kill(root)
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(db.get("a")))
        waiting.start()
        with served(root) as process:
            waiting.join(60)
            assert found == [None] and owner_of(root) == process.pid
            process.kill()
            process.wait()
            assert not owners(root)
            with pytest.raises(tidelog.Unreachable, match="Only an operator starts"):
                tidelog.connect(root, timeout=0.3)


def test_an_owner_refuses_a_store_for_an_operator(root: Path) -> None:
    """As a client of an earlier version would start it."""
    say(root, "port = 1")
    done = subprocess.run(
        [sys.executable, "-m", "tidelog.client.owner", str(root)], env=environment(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and not (root / "STORE").exists()
    assert done.stderr.startswith("cannot serve: StoreLocked: only an operator starts the server")


def test_a_client_may_start_nothing(root: Path, started: list[Path]) -> None:
    with pytest.raises(
        tidelog.Unreachable, match="With start=False a client starts none; run `tidelog serve"
    ):
        tidelog.connect(root, timeout=0.2, start=False)
    assert not root.exists() and not started
    with tidelog.connect(root) as db, tidelog.connect(root, start=False) as other:
        db.set("a", "1")
        assert other.get("a") == b"1"


def test_what_cannot_serve_takes_nothing_over(root: Path) -> None:
    with tidelog.connect(root) as db, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        owner = owner_of(root)
        words = ("--port", str(taken.getsockname()[1]))
        with served(root, *words, ready=False) as process:
            assert process.stderr is not None
            assert b"cannot listen on 127.0.0.1" in process.stderr.read()
            assert process.wait() == 5
        assert is_running(owner) and db.get("a") is None


def test_the_error_names_the_process(remembered: Path) -> None:
    with tidelog.connect(remembered):
        with pytest.raises(tidelog.StoreLocked) as caught:
            tidelog.open(remembered)
        pid = owner_of(remembered)
        text = str(caught.value)
        assert f"by process {pid}, an owner that a client started (it holds LOCK)" in text
        assert "run `tidelog serve`, which takes over" in text
    with served(remembered) as process:
        with pytest.raises(tidelog.StoreLocked) as caught:
            tidelog.open(remembered)
        text = str(caught.value)
        assert f"by process {process.pid}, `tidelog serve` (it holds LOCK)" in text
        assert "or stop that server" in text
    with tidelog.open(remembered), pytest.raises(tidelog.StoreLocked, match="Close it there"):
        tidelog.open(remembered)
