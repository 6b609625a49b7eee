"""`tidelog console`: a store in the browser, however it is served. Real processes, real sockets."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.client.owners import ended_owner, kill
from tests.server.console import chromium
from tests.server.ports import free_port
from tests.tools.conftest import Run
from tests.until import until

import tidelog
from tidelog.client.address import is_served
from tidelog.tools import exits

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/console/#token=([\w-]{40,})\n")


class Shown(NamedTuple):
    """A console that runs."""

    process: subprocess.Popen[str]
    port: int
    token: str

    def ask(
        self, path: str, told: object = None, cookie: str = "", csrf: str = ""
    ) -> tuple[int, dict[str, Any], str]:
        """(status, answer, cookie) of a request of the page."""
        headers = {"Content-Type": "application/json", "Cookie": cookie, "X-CSRF-Token": csrf}
        body = None if told is None else json.dumps(told)
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as link:
            link.request("GET" if told is None else "POST", f"/console/api/{path}", body, headers)
            answer = link.getresponse()
            found = (answer.getheader("Set-Cookie") or "").partition(";")[0]
            return answer.status, json.loads(answer.read()), found


@contextmanager
def shown(*words: str | Path) -> Iterator[Shown]:
    """The command, once it has printed its link; ended as by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "console", *map(str, words), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = LINK.fullmatch(process.stdout.readline())
        assert found is not None
        yield Shown(process, int(found[1]), found[2])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == exits.OK
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(params=["nobody", "owner", "serve", "port", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store with a job and a dead one, served in each of these ways."""
    root = tmp_path / "store"
    with tidelog.open(root) as db:
        queue = db.queue("mails")
        queue.put({"to": "nobody"})
        held = queue.get("worker-1")
        assert held is not None and held.fail("no mailbox")
        queue.put({"to": "zoe"})
    with ExitStack() as stack:
        stack.enter_context(ended_owner(root))
        if request.param == "owner":
            stack.enter_context(tidelog.connect(root))
        elif request.param != "nobody":
            db = stack.enter_context(tidelog.open(root))
            ports = {"port": free_port() if request.param == "url" else 0}
            if request.param == "port":
                ports["metrics_port"] = free_port()
            serving = stack.enter_context(tidelog.serve(db, **ports))
            if request.param == "url":
                yield f"redis://127.0.0.1:{serving.port}"
                return
        yield str(root)


def test_a_store_however_it_is_served(place: str) -> None:
    with shown(place) as console:
        assert console.ask("queues")[0] == 401
        status, session, cookie = console.ask("login", {"token": console.token})
        assert status == 200 and session["may_write"] and not session["signs_in"]
        assert session["tells"] == ("://" not in place)
        (row,) = console.ask("queues", cookie=cookie)[1]["queues"]
        assert (row["name"], row["waiting"], row["dead"]) == ("mails", 1, 1)
        told = console.ask("queue?key=mails&group=workers", cookie=cookie)[1]
        dead = told["dead_jobs"][0]
        life = console.ask(f"life?key=mails&id={dead['original_id']}", cookie=cookie)
        if session["tells"]:
            assert life[0] == 200
            texts = [each["text"] for each in life[1]["events"]]
            assert texts[0].startswith("put") and any("worker-1" in each for each in texts)
        else:
            assert life[0] == 404
        redrive = {"db": 0, "key": "mails", "ids": [dead["id"]]}
        assert console.ask("redrive", redrive, cookie)[0] == 403, "the CSRF token is missing"
        assert console.ask("redrive", redrive, csrf=session["csrf"])[0] == 401
        assert console.ask("redrive", redrive, cookie, session["csrf"])[1]["done"] == 1
        assert console.ask("queues", cookie=cookie)[1]["queues"][0]["dead"] == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", console.port), 5)


def test_a_link_works_once(tmp_path: Path) -> None:
    root = tmp_path / "store"
    tidelog.open(root).close()
    with ended_owner(root), shown(root) as console:
        for wrong in (
            {"token": "x" * 43},
            {"token": None},
            {},
            {"user": "default", "password": ""},
        ):
            assert console.ask("login", wrong)[0] == 401, wrong
        cookie = console.ask("login", {"token": console.token})[2]
        status, told, _ = console.ask("login", {"token": console.token})
        assert status == 401 and "was used already" in told["error"]
        assert console.ask("queues", cookie=cookie)[0] == 200
        assert console.ask("queues", cookie=cookie[:-1] + "?")[0] == 401


def test_a_server_that_is_killed_is_found_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    tidelog.open(root).close()
    with ended_owner(root), shown(root) as console:
        cookie = console.ask("login", {"token": console.token})[2]
        assert console.ask("queues", cookie=cookie)[0] == 200
        kill(root)
        assert console.ask("queues", cookie=cookie)[0] == 200, "another owner was started"


def test_a_user_of_a_url_has_its_rights(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store") as db:
        db.queue("mails").put(1)
        with tidelog.serve(db, port=free_port()) as serving:
            with tidelog.connect(tmp_path / "store") as admin:
                rules = (
                    "reset",
                    "on",
                    ">secret",
                    "~*",
                    "+@read",
                    "+ping",
                    "+acl|whoami",
                    "+select",
                )
                admin.execute_command("ACL", "SETUSER", "viewer", *rules)
            with shown(f"redis://viewer:secret@127.0.0.1:{serving.port}") as console:
                _, session, cookie = console.ask("login", {"token": console.token})
                assert session["user"] == "viewer"
                status, told, _ = console.ask(
                    "put", {"key": "mails", "value": "1"}, cookie, session["csrf"]
                )
                assert status == 403 and "NOPERM" in told["error"]
        assert len(db.queue("mails")) == 1


@pytest.mark.slow
def test_the_link_in_a_browser(tmp_path: Path) -> None:
    assert chromium.program() is not None, "no browser is here: apt-get install chromium"
    root = tmp_path / "store"
    with tidelog.open(root) as db:
        queue = db.queue("mails")
        queue.put({"to": "nobody"})
        held = queue.get("worker-1")
        assert held is not None and held.fail("no mailbox")
    with (
        ended_owner(root),
        shown(root) as console,
        chromium.opened(tmp_path / "browser") as page,
        chromium.opened(tmp_path / "other") as other,
    ):
        url = f"http://127.0.0.1:{console.port}/console/#token={console.token}"
        page.go(url)
        page.press("mails", "main")
        page.click("#dead summary")
        page.click("#dead dd a")
        page.press("Tell it from the log")
        page.until("document.querySelectorAll('#life li').length > 2")
        assert "delivered to worker-1" in page.text()
        page.press("Retry now")
        page.press("Retry now", "#ask")
        with tidelog.connect(root) as client:
            until(lambda: len(client.queue("mails").dead) == 0)
        other.go(url)
        other.until("document.getElementById('state').textContent.includes('was used already')")
        assert "mails" not in other.text() and not other.run(
            "document.querySelector('dialog[open]')"
        )
        page.go(url)
        page.until("document.body.dataset.drawn === 'queues'")
        assert page.run("location.hash") == "", "the token is not kept in the address"
        # The page of the job asks for it once more when it is dead no more.
        assert [fault for fault in page.faults if "404" not in fault] == []


def test_nothing_to_show(run: Run, tmp_path: Path) -> None:
    done = run("console", tmp_path / "nothing", "--no-browser")
    assert done.code == exits.NOT_A_STORE and not (tmp_path / "nothing").exists()
    done = run("console", f"redis://127.0.0.1:{free_port()}", "--no-browser")
    assert done.code == exits.REFUSED and "no server" in done.err
    tidelog.open(tmp_path / "store").close()
    with ended_owner(tmp_path / "store"), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        done = run("console", tmp_path / "store", "--no-browser", "--port", str(port))
        assert done.code == exits.SYSTEM and f"port {port}" in done.err
        until(lambda: is_served(tmp_path / "store"))
