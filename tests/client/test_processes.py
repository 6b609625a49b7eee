"""`SharedQueue.run(processes=)`: several processes take jobs, are replaced, and end in order with their parent."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.client.conftest import Bench
from tests.client.owners import ended_owner, is_running
from tests.rounds import rest_slow
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.aof.errors import NoThread
from tidelog.client import processes
from tidelog.client.processes import Processes
from tidelog.disk.process import environment

PROGRAM = r"""
import os, threading
import tidelog

def send(job):
    os.write(1, f"sent {job.value} {os.getpid()}\n".encode())
    if job.value == "slow":
        threading.Event().wait(60)

async def asend(job):
    send(job)

if __name__ == "__main__":
    with tidelog.queue("s", "mails", shared=True, codec="str") as mails:
        print("left", mails.run({handler}, processes=2, workers=1, {run}), flush=True)
"""


class Program:
    """A running program whose processes take jobs of the store `s` in a directory."""

    def __init__(self, place: Path, run: str = "drain=30", handler: str = "send") -> None:
        source = PROGRAM.replace("{handler}", handler).replace("{run}", run)
        (place / "work.py").write_text(source)
        self.out, self.err = place / "out", place / "err"
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "work.py"], cwd=place, stdout=out, stderr=err, env=environment()
            )

    def lines(self, word: str) -> list[list[str]]:
        found = [line.split() for line in self.out.read_text().splitlines()]
        return [line for line in found if line[0] == word]

    def sent(self) -> set[str]:
        return {line[1] for line in self.lines("sent")}

    def pids(self) -> set[int]:
        return {int(line[2]) for line in self.lines("sent")}

    def ends(self) -> int:
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with ended_owner(tmp_path / "s"):
        yield tmp_path


@pytest.fixture
def mails(place: Path) -> Iterator[tidelog.SharedQueue[str]]:
    with tidelog.queue(place / "s", "mails", shared=True, codec="str") as queue:
        yield queue


def started(place: Path, mails: tidelog.SharedQueue[str], **options: str) -> Program:
    """A program whose two processes have both done a job."""
    program = Program(place, **options)
    try:
        for n in range(1000):
            mails.put(f"first-{n}")
            until(lambda n=n: f"first-{n}" in program.sent())  # type: ignore[misc]
            if len(program.pids()) == 2:
                return program
        raise AssertionError("one process does all jobs")
    except BaseException:
        program.process.kill()
        raise


def test_they_do_all_jobs_and_end_when_idle(place: Path, mails: tidelog.SharedQueue[str]) -> None:
    mails.put_many(map(str, range(50)))
    program = Program(place, "block=0.5")
    assert program.ends() == 0, program.err.read_text()
    assert program.sent() == set(map(str, range(50)))
    assert program.lines("left") == [["left", "0"]] and len(mails) == 0


@pytest.mark.parametrize("handler", rest_slow(("send", "asend"), 1))
def test_a_killed_process_is_replaced_and_a_signal_ends_all(
    place: Path, mails: tidelog.SharedQueue[str], handler: str
) -> None:
    program = started(place, mails, handler=handler)
    try:
        before = program.pids()
        os.kill(min(before), signal.SIGKILL)
        until(lambda: f"process {min(before)} ended with signal 9" in program.err.read_text())
        for n in range(1000):
            mails.put(f"then-{n}")
            until(lambda n=n: f"then-{n}" in program.sent())  # type: ignore[misc]
            if len(program.pids()) == 3:
                break
        program.process.send_signal(signal.SIGTERM)
        assert program.ends() == 0, program.err.read_text()
        assert program.lines("left") == [["left", "0"]]
        assert not any(map(is_running, program.pids()))
    finally:
        program.process.kill()


def test_jobs_of_all_processes_that_do_not_end_are_given_back(
    place: Path, mails: tidelog.SharedQueue[str]
) -> None:
    program = started(place, mails, run="drain=0.1")
    try:
        mails.put_many(["slow", "slow"])
        until(lambda: len([line for line in program.lines("sent") if line[1] == "slow"]) == 2)
        program.process.send_signal(signal.SIGINT)
        assert program.ends() == 0, program.err.read_text()
        assert program.lines("left") == [["left", "2"]]
        job = mails.get("other", block=0)
        assert job is not None and job.deliveries == 1  # the first one did not count
        job.release()
    finally:
        program.process.kill()


def test_they_end_when_their_parent_is_killed(place: Path, mails: tidelog.SharedQueue[str]) -> None:
    program = started(place, mails)
    program.process.kill()
    program.ends()
    until(lambda: not any(map(is_running, program.pids())), "the processes go on")
    assert "Traceback" not in program.err.read_text()  # though nobody reads their answers


def test_a_call_at_the_top_of_the_main_file_is_an_error(place: Path) -> None:
    source = PROGRAM.replace('if __name__ == "__main__":', "if True:")
    (place / "top.py").write_text(source.replace("{handler}", "send").replace("{run}", "drain=1"))
    ran = subprocess.run(
        [sys.executable, "top.py"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert ran.returncode == 1 and 'call it under if __name__ == "__main__":' in ran.stderr


class Mail(BaseModel):
    to: str


def handle(job: tidelog.SharedJob[Mail]) -> None:
    with open(job.value.to, "a") as file:
        file.write("done\n")


def test_a_model_is_imported_there(bench: Bench, tmp_path: Path) -> None:
    mails = bench.connect().queue("mails", codec=Mail, keep=3, rate="100/s", concurrency=7)
    mails.put(Mail(to=str(tmp_path / "sent")))
    assert mails.run(handle, processes=2, workers=1, block=0) == 0
    assert (tmp_path / "sent").read_text() == "done\n"


def test_a_run_in_another_thread_ends_with_the_store(bench: Bench) -> None:
    store = bench.connect()
    mails = store.queue("mails", codec=Mail)
    left: list[int] = []
    thread = threading.Thread(
        target=lambda: left.append(mails.run(handle, processes=2, workers=1, drain=5))
    )
    thread.start()
    server = bench.serving.server
    assert server is not None
    until(lambda: server.blocked, "no process takes jobs")
    store.close()
    thread.join(PATIENCE_S)
    assert left == [0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"processes": 0}, "processes must be an integer from 1 to 256"),
        ({"processes": True}, "processes must be"),
        ({"processes": 257}, "processes must be"),
        ({"processes": 2, "workers": 0}, "workers must be"),
        ({"processes": 2, "drain": -1}, "drain"),
        ({"processes": 2, "batch": 0}, "batch"),
        ({"processes": 2, "time_limit": "x"}, "time_limit"),
        ({"processes": 2, "handler": lambda job: None}, "cannot import the handler"),
    ],
)
def test_wrong_arguments(bench: Bench, given: dict[str, Any], words: str) -> None:
    mails = bench.connect().queue("mails")
    with pytest.raises(tidelog.DataError, match=words):
        mails.run(given.pop("handler", handle), **given)


def test_a_codec_that_cannot_be_imported(bench: Bench) -> None:
    mails = bench.connect().queue("mails", codec=(lambda value: bytes(value), lambda raw: raw))
    with pytest.raises(tidelog.DataError, match="cannot import the codec"):
        mails.run(print, processes=2)


def test_an_embedded_queue_names_the_shared_one(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "mails") as mails:
        with pytest.raises(tidelog.DataError, match=r"tidelog\.connect\(path\)"):
            mails.run(print, processes=2)


def test_a_handler_whose_name_leads_nowhere(bench: Bench) -> None:
    mails = bench.connect().queue("mails")

    def made(job: object) -> None: ...

    made.__module__, made.__qualname__ = __name__, "missing"
    with pytest.raises(tidelog.DataError, match="cannot import the handler"):
        mails.run(made, processes=2)


COUNTS = """
import sys
with open(sys.argv[1], "a+") as file:
    file.write("x")
    file.seek(0)
    sys.exit(3 if file.read() == "x" else 0)
"""


@pytest.mark.parametrize("refused", ["process", "thread"])
def test_a_process_that_the_system_does_not_start_is_tried_again(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one must start: without it, nothing says that any ever will."""
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.01)
    popen, start = subprocess.Popen, threading.Thread.start
    allowed = 1
    started: list[subprocess.Popen[bytes]] = []

    def may() -> bool:
        nonlocal allowed
        allowed -= 1
        return allowed != -1

    def start_process(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        if refused == "process" and not may():
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(popen(*args, **options))
        return started[-1]

    def start_thread(thread: threading.Thread) -> None:
        if thread.name == "tidelog-child" and refused == "thread" and not may():
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(subprocess, "Popen", start_process)
    monkeypatch.setattr(threading.Thread, "start", start_thread)
    words = ["-c", COUNTS, str(tmp_path / "counted")]
    assert Processes(words, 1, 0.0, once=True).run() == 0
    assert caplog.text.count("another process cannot be started: ") == 1
    assert (tmp_path / "counted").read_text()[:2] == "xx"
    allowed = 0
    with pytest.raises((BlockingIOError, NoThread)):
        Processes(words, 1, 0.0, once=True).run()
    assert all(process.returncode is not None for process in started)


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_ends_unasked_is_started_again_after_longer_and_longer(
    code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(processes, "LOOK_S", 0.01)
    counted = tmp_path / "counted"
    counted.touch()
    words = ["-c", f"import sys; open({str(counted)!r}, 'a').write('x'); sys.exit({code})"]
    caplog.set_level(logging.WARNING, "tidelog.worker")
    over = Processes(words, 1, 0.0, once=False, over=lambda: len(counted.read_text()) >= 4)
    assert over.run() == 0
    pauses = re.findall(rf"ended with exit code {code}; starts another one in (\S+) s", caplog.text)
    assert pauses[:3] == ["0.01", "0.02", "0.04"]
