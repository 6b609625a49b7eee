"""A web application on uvicorn is restarted by SIGTERM again and again, under load. Its jobs are done, each once."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import pytest
from tests.client.owners import ended_owner, owner_of
from tests.rounds import slow_and_soak
from tests.server.ports import free_port
from tests.until import until

import tidelog

APP = """
import tidelog

queue = None


async def app(scope, receive, send):
    global queue
    if scope["type"] == "lifespan":
        await receive()
        async with tidelog.aqueue("data", "mails", shared=True) as queue:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = (await receive())["body"].decode()
    id = await queue.put(body)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": id.encode()})
"""
PAUSE_S = 0.02  # a client that was refused asks again after this time
CLIENTS = 3
BETWEEN = 10  # replies that come between two restarts


class Load:
    """Clients of the application, in threads. Each posts numbered bodies, and notes the IDs of those accepted."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.accepted: dict[str, str] = {}  # ID -> body
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._post, args=(name,)) for name in range(CLIENTS)
        ]

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def _post(self, name: int) -> None:
        number = 0
        while not self._ended.is_set():
            number += 1
            body = f"{name}-{number}"
            try:
                with urllib.request.urlopen(self.url, body.encode(), timeout=60) as reply:
                    self.accepted[reply.read().decode()] = body
            except urllib.error.HTTPError:
                raise  # it answered with an error, which none of its restarts explains
            except (OSError, HTTPException):
                self._ended.wait(PAUSE_S)  # it restarts

    def end(self) -> bool:
        """Whether all of them went on to this end."""
        living = all(thread.is_alive() for thread in self._threads)
        self._ended.set()
        for thread in self._threads:
            thread.join(60)
        return living


@pytest.mark.parametrize("restarts", slow_and_soak(6, 20))
def test_uvicorn_is_restarted_under_load(tmp_path: Path, restarts: int) -> None:
    root, port = tmp_path / "data", free_port()
    (tmp_path / "web.py").write_text(APP)
    words = ["-m", "uvicorn", "web:app", "--port", str(port), "--log-level", "error"]
    log = (tmp_path / "web.log").open("wb")

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, *words], cwd=tmp_path, stdout=log, stderr=log)

    load = Load(f"http://127.0.0.1:{port}/")
    done: list[tuple[str, str]] = []

    def work() -> None:
        for job in jobs:
            with job:
                done.append((job.id, job.value))

    def more(than: int) -> None:
        until(
            lambda: len(load.accepted) > than + BETWEEN or web.poll() is not None, "no reply comes"
        )
        assert web.poll() is None, (tmp_path / "web.log").read_text()

    with log, ended_owner(root), tidelog.queue(root, "mails", shared=True) as queue:
        owner = owner_of(root)
        jobs = queue.consume()
        worker = threading.Thread(target=work)
        worker.start()
        web = start()
        try:
            load.begin()
            for _ in range(restarts):
                more(len(load.accepted))
                web.terminate()
                # uvicorn ends in order, and then by the signal that it got
                assert web.wait(60) in (0, -15), (tmp_path / "web.log").read_text()
                web = start()
            more(len(load.accepted))
            assert load.end()
        finally:
            load.end()
            web.terminate()
            web.wait(60)
        until(lambda: not len(queue), "jobs are left over")
        assert owner_of(root) == owner  # the clients came and went
        jobs.close()
        worker.join(60)
    assert len(done) == len({id for id, _ in done})
    found = dict(done)
    assert {id: found.get(id) for id in load.accepted} == load.accepted
    assert (tmp_path / "web.log").read_text() == ""
