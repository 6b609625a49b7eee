"""Handlers for a run with `isolate="process"`, which its processes import."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.until import until

import tidelog

log = logging.getLogger("app")


def handle(job: Any) -> Any:
    """Do what the value of the job says: a name of one of these functions, and its arguments."""
    name, *args = job.value
    return globals()[name](job, *args)


def pid(job: Any) -> int:
    return os.getpid()


def facts(job: Any) -> list[Any]:
    found = job.id, job.deliveries, job.headers, job.priority, job.key, job.worker, job.time_limit
    return [*found, str(job.retry), job.state, isinstance(job.enqueued_at.year, int)]


def hangs(job: Any, path: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(f"{path}.new", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.replace(f"{path}.new", path)
    time.sleep(600)


def heeds(job: Any, path: str) -> None:
    """Wait until the job is cancelled, and clean up."""
    calls: list[str] = []
    job.on_cancel(lambda: calls.append(job.id))
    Path(f"{path}.began").touch()
    until(lambda: job.cancelled and calls)
    told = {"state": job.state, "ack": job.ack(), "called": calls == [job.id]}
    Path(path).write_text(json.dumps({**told, "pid": os.getpid()}))


def counts(job: Any) -> list[int]:
    """Wait until a killed process was counted."""
    mails = job.store.queue("mails")
    until(lambda: mails.stats().killed)
    (worker,) = mails.workers()
    return [worker.killed, worker.hanging]


def extended(job: Any, seconds: float) -> bool:
    held: bool = job.extend(600)
    time.sleep(seconds)
    return held


def exits(job: Any) -> None:
    os._exit(3)


def forks(job: Any) -> None:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(4)


def killed(job: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raises(job: Any) -> None:
    raise LookupError("no such customer")


def leaves(job: Any) -> None:
    sys.exit("no")


def gives_up(job: Any) -> None:
    raise tidelog.GiveUp("enough")


def tries_again(job: Any) -> int:
    if job.deliveries == 1:
        raise tidelog.RetryJob("later", delay=0)
    return int(job.deliveries)


def says(job: Any, text: str) -> None:
    print(f"printed {text}", end="")
    log.warning("logged %s", text, extra={"mine": text, "odd": lambda: None})
    log.debug("not logged %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("raised %s", text)


def puts(job: Any) -> None:
    bills = job.store.queue("bills", codec="msgpack")
    put = bills.put("a", priority=2)
    assert bills.put_many(["b", "c"], delay=60) == 2
    assert bills.job(put).state == "waiting" and len(bills) == 1
    wrong: tuple[Callable[[], Any], ...] = (
        lambda: next(bills.consume(block=0)),
        lambda: bills.put("a", priority=99),
    )
    for refused in wrong:
        try:
            refused()
        except tidelog.DataError:
            continue
        raise AssertionError("it was not refused")
    assert job.done_and(bills.new("d", headers={"of": job.id}))
    assert job.state == "acked" and not job.release()


def full(job: Any) -> str:
    try:
        job.store.queue("small", max_depth=1).put_many([1, 2], timeout=0)
    except tidelog.QueueFull as error:
        return str(error.stored)
    return "not full"


def grows(job: Any) -> int:
    kept.append(b"x" * 100_000_000)
    return os.getpid()


kept: list[bytes] = []


def opens(job: Any, path: str) -> list[str]:
    found = []
    for opening in (tidelog.open, lambda path: tidelog.connect(path).ping()):
        try:
            opening(path)
        except tidelog.TidelogError as error:
            found.append(type(error).__name__)
        else:
            found.append("opened")
    return found


def odd(job: Any) -> object:
    return object()


def doubled(job: Any, next: Callable[[Any], Any]) -> list[Any]:
    """A middleware."""
    result = next(job)
    return [result, result]
