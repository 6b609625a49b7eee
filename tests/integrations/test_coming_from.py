"""The guide "Coming from ...": its programs move the jobs of a real huey and a real RQ, and lose none."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.client.owners import ended_owner
from tests.oracle.appending import Appending
from tests.server.ports import free_port
from tests.until import until

import tidelog
from tidelog.disk.process import environment

pytestmark = pytest.mark.slow  # huey and RQ are installed for the slow tests
PAGE = Path(__file__).parents[2] / "docs/guides/coming-from-other-queues.md"

# The old functions, which hand over, as the page says of jobs that are put to both.
HUEY = """
import os, pathlib, time, tidelog
from huey import {kind}
huey = {kind}("old", {where})

@huey.task(context=True)
def send(to, task=None):
    if to == "stuck":
        pathlib.Path("beginning").write_text(str(os.getpid()))
        os.rename("beginning", "begun")
        time.sleep(600)
    with tidelog.queue("shop-data", "mails", shared=True) as mails:
        mails.put({{"task": "send", "args": {{"to": to}}}}, dedup_id=task.id)

def put(to):
    return send(to).id

def put_later(to):
    return send.schedule((to,), delay=3600).id
"""
RQ = """
import os, pathlib, time, tidelog
from datetime import timedelta
import redis, rq
queue = rq.Queue("old", connection=redis.Redis(port={port}))

def send(to):
    if to == "stuck":
        pathlib.Path("beginning").write_text(str(os.getpid()))
        os.rename("beginning", "begun")
        time.sleep(600)
    if to == "refused":
        raise ConnectionError("no answer")
    with tidelog.queue("shop-data", "mails", shared=True) as mails:
        value = {{"task": "send", "args": {{"to": to}}}}
        mails.put(value, dedup_id=rq.get_current_job().id)

def put(to):
    return queue.enqueue("old.send", to).id

def put_later(to):
    return queue.enqueue_in(timedelta(hours=1), "old.send", to).id
"""
# Jobs that only the old queue gets are put before the others, and one that it runs later.
PUT = """
import old, tidelog
for n in range(10):
    old.put(f"old {n}")
old.put_later("later")
with tidelog.queue("shop-data", "mails", shared=True) as mails:
    for to in ("both 0", "both 1", "refused", "stuck", "both 2", "both 3"):
        id = old.put(to)
        if BOTH:
            mails.put({"task": "send", "args": {"to": to}}, dedup_id=id)
"""
ALL = Counter(
    ["both 0", "both 1", "refused", "stuck", "both 2", "both 3", *(f"old {n}" for n in range(10))]
)
ENV = {**environment(), "PYTHONPATH": os.pathsep.join([".", *filter(None, sys.path)])}
LEFT = {
    "huey": "print(old.huey.pending_count() + old.huey.scheduled_count())",
    "rq": "print(old.queue.count + old.queue.scheduled_job_registry.count)",
}


@dataclass(frozen=True)
class Old:
    """An old queue.

    name      the one that the page has a program for
    module    the source of `old.py`
    worker    the command of its worker
    """

    name: str
    module: str
    worker: tuple[str, ...]

    @property
    def program(self) -> str:
        """The page's program that copies it."""
        found = re.search(rf"```py\n(# copy_{self.name}\.py\n.*?)```", PAGE.read_text(), re.S)
        assert found is not None
        return found[1]


@pytest.fixture(params=["huey on SQLite", "huey on Redis", "rq"])
def old(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Old]:
    place = tmp_path / "redis"
    place.mkdir()
    port = free_port()
    server = Appending(place, port=str(port), appendfsync="always")
    consumer = (sys.executable, "-m", "huey.bin.huey_consumer", "old.huey")
    url = f"redis://127.0.0.1:{port}"
    made = {
        "huey on SQLite": Old(
            "huey", HUEY.format(kind="SqliteHuey", where='filename="old.db"'), consumer
        ),
        "huey on Redis": Old("huey", HUEY.format(kind="RedisHuey", where=f"port={port}"), consumer),
        "rq": Old(
            "rq",
            RQ.format(port=port),
            (sys.executable, "-m", "rq.cli", "worker", "--url", url, "old"),
        ),
    }[request.param]
    (tmp_path / "old.py").write_text(made.module)
    monkeypatch.chdir(tmp_path)
    try:
        with ended_owner(tmp_path / "shop-data"):
            yield made
    finally:
        server.stop()


def run(source: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the directory of the test."""
    command = [sys.executable, "-c", source]
    return subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=120)


def done(source: str) -> str:
    """The output of a program that ends well."""
    ended = run(source)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def moved() -> tuple[Counter[str], list[str]]:
    """The jobs that are here by now, and those that are due later."""
    with tidelog.queue("shop-data", "mails", shared=True) as mails:
        due = Counter(job.value["args"]["to"] for job in mails.peek(100))
        return due, [job.value["args"]["to"] for job in mails.peek(100, scheduled=True)]


def kill_a_worker_in_its_job(old: Old) -> None:
    """Let the old worker hand over until it is in the middle of a job, and kill it."""
    worker = subprocess.Popen(
        old.worker, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    begun = Path("begun")
    try:
        until(lambda: worker.poll() is not None or begun.exists(), "no job began")
        assert worker.poll() is None
    finally:
        worker.kill()
        worker.wait()
    child = int(begun.read_text())
    if child != worker.pid:  # RQ forks a child for each job
        os.kill(child, signal.SIGKILL)


def test_a_copy_that_is_killed_and_repeated_moves_each_job_once(old: Old) -> None:
    done("BOTH = True" + PUT)
    last = re.compile(r"huey\.flush\(\)|job\.delete\(\)")
    assert last.search(old.program)
    broken = run("import os\n" + last.sub("os.kill(os.getpid(), 9)", old.program))
    assert broken.returncode == -signal.SIGKILL, broken.stderr
    done(old.program)
    done(old.program)
    assert moved() == (ALL, ["later"])
    assert done(f"import old\n{LEFT[old.name]}") == "0\n"


def test_no_job_is_lost_with_an_old_worker_that_is_killed(old: Old) -> None:
    """huey forgets the job of a killed worker, so it must have been put to both."""
    done(f"BOTH = {old.name == 'huey'}" + PUT)
    kill_a_worker_in_its_job(old)
    handed_over, _ = moved()
    assert handed_over["old 9"] == 1
    done(old.program)
    assert moved() == (ALL, ["later"])
