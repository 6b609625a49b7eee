"""The guide "Web app and workers", followed as written: gunicorn with several processes, and two workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.client.owners import ended_owner, owner_of
from tests.server.ports import free_port
from tests.until import until

PAGE = Path(__file__).parents[2] / "docs/guides/web-app-and-workers.md"
JOBS = 60


def program(name: str) -> str:
    """The first Python block behind the first place where the page names the file."""
    text = PAGE.read_text().split(f"`{name}`", 1)[1]
    found = re.search(r"```python\n(.*?)```", text, re.S)
    assert found
    return found[1]


@pytest.mark.slow
def test_a_web_app_and_two_workers(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    for name in ("web.py", "worker.py"):
        (tmp_path / name).write_text(program(name))
    words = re.search(r"^gunicorn (.*)$", PAGE.read_text(), re.M)
    assert words
    web = [sys.executable, "-m", "gunicorn", "-b", f"127.0.0.1:{port}", *words[1].split()]
    outputs = [tmp_path / f"worker{n}.txt" for n in range(2)]
    with ended_owner(tmp_path / "mail-data"):
        processes = [subprocess.Popen(web, cwd=tmp_path, stderr=subprocess.DEVNULL)]
        try:
            for output in outputs:
                with output.open("wb") as file:
                    processes.append(
                        subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path, stdout=file)
                    )
            until(lambda: answers(url), "gunicorn does not answer")
            for n in range(JOBS):
                if n == JOBS // 3:
                    os.kill(owner_of(tmp_path / "mail-data"), signal.SIGKILL)
                body = f"user-{n}@example.org".encode()
                with urllib.request.urlopen(url, body, timeout=60) as reply:
                    assert re.fullmatch(rb"\d+-\d+", reply.read())
            until(lambda: len(done(outputs)) >= JOBS, "the workers do not do all jobs")
            assert set(done(outputs)) == {f"user-{n}@example.org" for n in range(JOBS)}
            with urllib.request.urlopen(url, timeout=60) as reply:
                assert reply.read() == b'{"waiting": 0}'
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60):
            return True
    except OSError:
        return False


def done(outputs: list[Path]) -> list[str]:
    """The addresses that the workers printed."""
    lines = [line for output in outputs for line in output.read_text().splitlines()]
    return [line.removeprefix("sent ") for line in lines]
