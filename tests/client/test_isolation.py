"""A run whose handlers work in processes of their own: what becomes of a job is its handler's doing and no other's."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client import isolated
from tests.client.conftest import KINDS, opened
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.process import environment

THREADS = [kind for kind in KINDS if "asyncio" not in kind]
LIMIT = 1.0  # seconds


@pytest.fixture(params=THREADS)
def mails(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A queue whose jobs are dead after one failure."""
    with opened(request.param, tmp_path / "s") as store:
        yield store.queue("mails", max_deliveries=1)


def work(mails: Any, *, workers: int = 1, block: float = 0, **run: Any) -> int:
    """Do the jobs that are there."""
    run = {"results": True, "isolate": "process", **run}
    return int(mails.run(isolated.handle, workers=workers, block=block, **run))


def left(mails: Any) -> dict[str, str]:
    """The dead jobs: the first word of the value -> the last error, or why it was given up."""
    return {
        dead.value[0]: dead.errors[-1].error if dead.errors else dead.reason
        for dead in mails.dead.list()
    }


def runs(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_handler_has_the_job_and_its_store(mails: Any, capfd: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    facts = mails.put(
        *[["facts"]],
        **{"headers": {"a": "b"}, "priority": 3, "key": "k", "time_limit": 60, "retry": "max=7"},
    )
    again = mails.put(["tries_again"], retry="max=2 base=0.001")
    says, puts, full = mails.put(["says", "hello"]), mails.put(["puts"]), mails.put(["full"])
    pids = [mails.put(["pid"]) for _ in range(3)]
    odd = mails.put(["odd"])
    assert work(mails, workers=2, block=LIMIT, worker="anna") == 0
    text = "backoff=exponential max=7"
    found = [facts, 1, {"a": "b"}, 3, "k", "anna", 60, text, "open", True]
    assert facts.result(0) == found and again.result(0) == 2 and full.result(0) == "1"
    assert says.result(0) is None and len({put.result(0) for put in pids} - {os.getpid()}) in (1, 2)
    assert "printed hello" in capfd.readouterr().out
    records = {record.getMessage(): record for record in caplog.records if record.name == "app"}
    assert set(records) == {"logged hello", "raised hello"}
    assert "ValueError: hello" in str(records["raised hello"].exc_text)
    assert records["logged hello"].process != os.getpid()
    bills = mails.store.queue("bills", codec="msgpack")
    waiting = [(job.value, job.headers) for job in bills.peek()]
    assert waiting == [("a", {}), ("d", {"of": str(puts)})] and bills.stats().scheduled == 2
    assert set(left(mails)) == {"odd"} and "cannot encode" in mails.job(odd).reason
    assert len(mails) == 0


def test_a_process_that_ends_is_the_failure_of_its_job_alone(
    mails: Any, tmp_path: Path, caplog: Any
) -> None:
    where = tmp_path / "hangs"
    for value in (["exits"], ["forks"], ["killed"], ["raises"], ["leaves"], ["gives_up"]):
        mails.put(value)
    mails.put(["hangs", str(where)], time_limit=LIMIT)
    counts = mails.put(["counts"])
    long = mails.put(["extended", 1.5 * LIMIT], time_limit=LIMIT)
    pids = [mails.put(["pid"]) for _ in range(5)]
    assert work(mails, workers=2, block=4 * LIMIT) == 0
    assert left(mails) == {
        "exits": "ProcessDied: the process of the job ended with exit code 3",
        "forks": "ProcessDied: the process of the job ended with exit code 4",
        "killed": "ProcessDied: the process of the job ended by signal 9 (SIGKILL)",
        "raises": "LookupError: no such customer",
        "leaves": "SystemExit: no",
        "gives_up": "enough",
        "hangs": f"TimeLimitExceeded: the handler worked for more than {LIMIT:g} s",
    }
    (raised,) = [dead for dead in mails.dead.list() if dead.value == ["raises"]]
    assert "isolated.py" in raised.errors[0].traceback and "in raises" in raised.errors[0].traceback
    assert long.result(0) is True and all(put.result(0) for put in pids)
    assert len(mails) == 0
    assert counts.result(0) == [1, 0]
    hung = [int(word) for word in where.read_text().split()]
    until(lambda: not any(map(runs, hung)))  # with what the handler had started
    assert "app" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.slow
def test_the_handler_of_a_cancelled_job_may_end(mails: Any, tmp_path: Path) -> None:
    """It learns of the cancel, and cleans up; its process goes on."""
    where, began = tmp_path / "heeds", tmp_path / "heeds.began"
    heeds, after = mails.put(["heeds", str(where)]), mails.put(["pid"])

    def cancel() -> None:
        until(began.exists)
        assert mails.cancel(str(heeds))

    ender = threading.Thread(target=cancel)
    ender.start()
    assert work(mails, block=LIMIT) == 0
    ender.join()
    told = json.loads(where.read_text())
    assert told == {"state": "cancelled", "ack": False, "called": True, "pid": after.result(0)}
    assert mails.job(heeds).state == "cancelled" and left(mails) == {} and len(mails) == 0


def test_the_process_of_a_cancelled_job_is_killed(mails: Any, tmp_path: Path) -> None:
    """If the handler goes on, and with it what this has started. The worker goes on with another process."""
    where = tmp_path / "hangs"
    hangs = mails.put(["hangs", str(where)])
    after, counts = mails.put(["pid"]), mails.put(["counts"])

    def cancel() -> None:
        until(where.exists)
        assert mails.cancel(str(hangs))

    ender = threading.Thread(target=cancel)
    ender.start()
    assert work(mails, block=4 * LIMIT) == 0
    ender.join()
    hung = [int(word) for word in where.read_text().split()]
    until(lambda: not any(map(runs, hung)))
    assert mails.job(hangs).state == "cancelled" and left(mails) == {}
    assert after.result(0) not in (hung[0], os.getpid()) and counts.result(0) == [1, 0]


def test_hooks_and_middleware(mails: Any) -> None:
    """The run calls the hooks; middleware is around the handler, in its process."""
    told: list[Any] = []
    run: dict[str, Any] = {
        "on_done": lambda job, result: told.append(("done", job.value[0], result)),
        "on_retry": lambda job, error, pause: told.append(("retry", str(error), pause)),
        "middleware": [isolated.doubled],
    }
    mails.put(["tries_again"], retry="max=2")
    assert work(mails, block=LIMIT, **run) == 0
    assert told == [("retry", "later", 0), ("done", "tries_again", [2, 2])]
    with pytest.raises(tidelog.DataError, match="cannot import the middleware"):
        work(mails, middleware=[lambda job, next: next(job)])


def test_a_process_that_dies_idle_costs_no_job_its_delivery(mails: Any) -> None:
    mails.put(["pid"])
    found: list[Any] = []

    def serve() -> None:
        found.append(work(mails, block=PATIENCE_S))

    run = threading.Thread(target=serve)
    first = mails.put(["pid"])
    run.start()
    os.kill(int(first.result(PATIENCE_S)), signal.SIGKILL)
    until(lambda: not runs(int(first.result(0))))
    second = mails.put(["facts"])
    assert second.result(PATIENCE_S)[1] == 1  # its first delivery
    mails.store.close()
    run.join(PATIENCE_S)
    assert found == [0]


def test_what_hangs_at_the_end_of_the_drain_goes_back(mails: Any, tmp_path: Path) -> None:
    where = tmp_path / "hangs"
    mails.put(["hangs", str(where)])

    def end() -> None:
        until(where.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    ender = threading.Thread(target=end)
    ender.start()
    assert work(mails, workers=2, block=PATIENCE_S, drain=0.01) == 1
    ender.join()
    worker, its_child = map(int, where.read_text().split())
    assert not runs(worker)
    until(lambda: not runs(its_child))
    job = mails.get(block=PATIENCE_S)
    assert job.deliveries == 1 and job.ack() and left(mails) == {}


def test_a_process_is_used_for_so_many_jobs(mails: Any) -> None:
    pids = [mails.put(["pid"]) for _ in range(5)]
    assert work(mails, max_jobs=2) == 0
    found = [put.result(0) for put in pids]
    assert found[0] == found[1] != found[2] == found[3] != found[4]
    assert not any(map(runs, found))


def test_a_process_is_used_up_to_so_much_memory(mails: Any) -> None:
    puts = [mails.put([name]) for name in ("pid", "grows", "pid")]
    assert work(mails, max_memory=100_000_000) == 0
    before, grown, after = (put.result(0) for put in puts)
    assert before == grown != after


def test_the_parents_store_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.queue(path, "mails", fsync="no") as mails:
        put = mails.put(["opens", str(path)])
        assert work(mails) == 0 and put.result(0) == ["OfParent"] * 2
    with opened("shared", path) as store:  # a client may connect
        mails = store.queue("mails")
        put = mails.put(["opens", str(path)])
        assert work(mails) == 0 and put.result(0) == ["StoreLocked", "opened"]


def program(tmp_path: Path, text: str) -> subprocess.Popen[str]:
    """A program that runs a queue of the store at its first argument."""
    file = tmp_path / "program.py"
    file.write_text(text)
    words = [sys.executable, str(file), str(tmp_path / "s")]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())


UNGUARDED = """
import sys, tidelog

def handle(job):
    pass

queue = tidelog.queue(sys.argv[1], "mails", {how})
try:
    queue.run(handle, block=0, workers=1, isolate="process")
except tidelog.TidelogError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("how", "said"), [("fsync='no'", "OfParent"), ("shared=True", "DataError")]
)
def test_a_program_that_opens_its_store_when_it_is_imported(
    tmp_path: Path, how: str, said: str
) -> None:
    with tidelog.open(tmp_path / "s") as db:
        if "shared" in how:
            with tidelog.serve(db, port=0):
                found = program(tmp_path, UNGUARDED.format(how=how)).communicate(timeout=PATIENCE_S)
    if "shared" not in how:
        found = program(tmp_path, UNGUARDED.format(how=how)).communicate(timeout=PATIENCE_S)
    assert found[0].splitlines()[-1].startswith(said) and 'if __name__ == "__main__"' in found[0]


GUARDED = """
import json, os, subprocess, sys, time, tidelog

def handle(job):
    begun = subprocess.Popen(["sleep", "600"])
    with open(sys.argv[1] + ".pids", "a") as file:
        file.write(f"{os.getpid()} {begun.pid}\\n")
    time.sleep(600)

if __name__ == "__main__":
    queue = tidelog.queue(sys.argv[1], "mails", fsync="no", retry_after=0.1)
    queue.put_many([1, 2])
    queue.run(handle, workers=2, isolate="process")
"""


def test_the_processes_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """And with them what their handlers have started."""
    begun = program(tmp_path, GUARDED)
    pids = Path(f"{tmp_path / 's'}.pids")
    until(lambda: pids.exists() and len(pids.read_text().split()) == 4)
    begun.kill()
    begun.communicate()
    until(lambda: not any(runs(int(pid)) for pid in pids.read_text().split()))
    with tidelog.queue(tmp_path / "s", "mails", retry_after=0.1) as mails:
        found = [job.deliveries for job in mails.consume(block=5) if job.ack()]
        assert found == [2, 2]


async def asynchronous(job: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("handler", "run", "said"),
    [
        (lambda job: None, {}, "another process cannot import the handler"),
        (isolated.handle, {"isolate": "thread"}, 'isolate must be "process" or None'),
        (isolated.handle, {"max_jobs": 0}, "max_jobs must be an integer of at least 1"),
        (isolated.handle, {"max_memory": "1g"}, "max_memory must be an integer of at least 1"),
        (asynchronous, {}, "run takes a plain function"),
    ],
)
def test_arguments(mails: Any, handler: Any, run: dict[str, Any], said: str) -> None:
    with pytest.raises(tidelog.DataError, match=said):
        mails.run(handler, **{"isolate": "process", "block": 0, **run})


BROKEN = """
import sys
import tidelog

if __name__ != "__main__":
    raise LookupError("not twice")

def handle(job):
    pass

with tidelog.queue(sys.argv[1], "mails") as queue:
    try:
        queue.run(handle, workers=1, isolate="process")
    except tidelog.DataError as error:
        print(error)
"""


def test_a_program_that_cannot_be_imported(tmp_path: Path) -> None:
    said, _ = program(tmp_path, BROKEN).communicate(timeout=PATIENCE_S)
    assert said == "a process of the run cannot work: LookupError: not twice\n"


def test_several_processes_have_processes_of_their_own(tmp_path: Path) -> None:
    with opened("shared", tmp_path / "s") as store:
        mails = store.queue("mails", max_deliveries=1)
        puts = [mails.put(["pid"]) for _ in range(20)]
        mails.put(["killed"])
        assert work(mails, processes=2, block=LIMIT) == 0
        assert all(put.result(0) for put in puts)
        assert "SIGKILL" in left(mails)["killed"]
        assert json.dumps(left(mails))
