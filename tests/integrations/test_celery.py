"""Celery on a shared store: its own worker command, with a process pool, one of whose processes is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import celery
import pytest
from celery.exceptions import ImproperlyConfigured, TaskRevokedError, TimeLimitExceeded
from tests.client.owners import ended_owner
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.process import environment
from tidelog.integrations.celery import TidelogBackend, revoke

APP = """
import os
from celery import Celery
import tidelog.integrations.celery

app = Celery("app", broker="tidelog:///s", backend="tidelog:///s")
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, worker_enable_remote_control=False,
                broker_transport_options={"retry_after": 1})

@app.task(name="square")
def square(n):
    with open("pids", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return n * n

@app.task(name="total")
def total(numbers):
    return sum(numbers)
"""


def test_a_backend_needs_a_path() -> None:
    for url in (None, "tidelog://", "tidelog://host/path", "redis:///s"):
        with pytest.raises(ImproperlyConfigured):
            TidelogBackend(url, app=celery.Celery("app", set_as_current=False))


@pytest.mark.slow
def test_a_celery_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = [sys.executable, "-m", "celery", "-A", "app", "worker", "-c", "2", "-l", "info"]
    with ended_owner(tmp_path / "s"):
        with (tmp_path / "log").open("wb") as log:
            worker = subprocess.Popen(
                command, cwd=tmp_path, env=environment(), stdout=log, stderr=log
            )
        try:
            from app import app, square, total  # type: ignore[import-not-found]

            results: list[Any] = [square.delay(n) for n in range(20)]
            assert [result.get(timeout=PATIENCE_S) for result in results] == [
                n * n for n in range(20)
            ]
            chord = celery.chord([square.s(n) for n in range(5)], total.s())
            assert chord.apply_async().get(timeout=PATIENCE_S) == 30

            # the whole worker is killed while it has tasks; another one does them
            results = [square.delay(n) for n in range(10)]
            worker.kill()
            worker.wait()
            for pid in set((tmp_path / "pids").read_text().split()):
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            with (tmp_path / "log").open("ab") as log:
                worker = subprocess.Popen(
                    command, cwd=tmp_path, env=environment(), stdout=log, stderr=log
                )
            assert [result.get(timeout=PATIENCE_S) for result in results] == [
                n * n for n in range(10)
            ]
            with tidelog.connect(tmp_path / "s") as db:
                until(lambda: len(db.queue("celery")) == 0)
            app.close()
        finally:
            worker.terminate()
            worker.wait(PATIENCE_S)
            sys.modules.pop("app", None)


LIMITS = """
import time
from celery import Celery
import tidelog.integrations.celery

app = Celery("limits", broker="tidelog:///s", backend="tidelog:///s")
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=2, worker_enable_remote_control=False)

@app.task(name="hangs", time_limit=600)
def hangs(path=None):
    if path:
        open(path, "w").close()
    time.sleep(600)

@app.task(name="one")
def one():
    return 1
"""


@pytest.mark.slow
def test_limits_of_time_and_revoked_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "limits.py").write_text(LIMITS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = [sys.executable, "-m", "celery", "-A", "limits", "worker", "-c", "1", "-l", "info"]
    with ended_owner(tmp_path / "s"), (tmp_path / "log").open("wb") as log:
        limits: Any = import_module("limits")
        limits.hangs.delay()  # it waits, and so no worker sees it
        with tidelog.connect(tmp_path / "s") as db:
            queue = db.queue("celery", codec="json")
            (job,) = queue.peek()
            found = queue.job(job.id)
            assert found is not None and found.time_limit == 600
            task_id = job.value["headers"]["id"]
            assert revoke(limits.app, task_id) and not revoke(limits.app, task_id)
            with pytest.raises(TaskRevokedError):
                limits.app.AsyncResult(task_id).get(timeout=PATIENCE_S)
            assert len(queue) == 0
        worker = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=log, stderr=log)
        try:
            running = limits.hangs.delay("begun")
            fetched = limits.hangs.delay("never")
            until(lambda: (tmp_path / "begun").exists(), "the task does not begin")
            assert revoke(limits.app, fetched.id) and revoke(limits.app, running.id)
            for result in (running, fetched):
                with pytest.raises(TaskRevokedError):
                    result.get(timeout=PATIENCE_S)
            late = limits.hangs.apply_async(time_limit=1)
            assert limits.one.delay().get(timeout=PATIENCE_S) == 1  # its process is free
            with pytest.raises(TimeLimitExceeded):
                late.get(timeout=PATIENCE_S)
            with tidelog.connect(tmp_path / "s") as db:
                until(lambda: len(db.queue("celery")) == 0, "a task is left")
            assert not (tmp_path / "never").exists()
        finally:
            limits.app.close()
            worker.terminate()
            worker.wait(PATIENCE_S)
            sys.modules.pop("limits", None)
