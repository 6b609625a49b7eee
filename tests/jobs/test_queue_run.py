"""Running workers: they end in order at a signal, and none of their jobs is lost or counted for nothing."""

from __future__ import annotations

import asyncio
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
from tests.until import PATIENCE_S, parked, until

import tidelog
from tidelog.api.queue.running import plan
from tidelog.api.queue.running.signals import Signals
from tidelog.api.queue.running.threads import run_threads

LONG = PATIENCE_S


@pytest.fixture
def mails(tmp_path: Path) -> Iterator[tidelog.Queue]:
    with tidelog.queue(tmp_path / "s", "mails", fsync="no", retry_after=0.05) as found:
        yield found


@pytest.fixture
def stopping() -> Iterator[threading.Event]:
    """Set when a run says that it takes no more jobs."""
    said = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "takes no more jobs" in record.getMessage():
                said.set()

    logger, listener = logging.getLogger("tidelog.worker"), Listener()
    before = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    yield said
    logger.removeHandler(listener)
    logger.setLevel(before)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


# --- taking jobs


def test_every_job_is_done_once_by_as_many_threads_as_asked_for(mails: tidelog.Queue) -> None:
    mails.put_many(range(100))
    together = threading.Barrier(3)
    done: list[int] = []

    def handle(job: tidelog.Job) -> None:
        if job.value < 3:
            together.wait(LONG)  # three jobs are handled at the same time
        done.append(job.value)

    assert mails.run(handle, workers=3, block=0) == 0
    assert sorted(done) == list(range(100))
    assert len(mails) == 0


def test_a_batch_is_acknowledged_together(mails: tidelog.Queue) -> None:
    mails.put_many(range(100))
    done: list[int] = []
    mails.run(lambda job: done.append(job.value), workers=2, batch=7, block=0)
    assert sorted(done) == list(range(100))
    assert len(mails) == 0


def test_a_job_whose_handler_raises_is_retried_and_then_dead(tmp_path: Path) -> None:
    with tidelog.queue(
        tmp_path / "s", "mails", fsync="no", retry_after=0.01, max_deliveries=2
    ) as mails:
        mails.put_many([0, 1])

        def handle(job: tidelog.Job) -> None:
            if job.value == 0:
                raise LookupError("no such address")

        # block is longer than any pause, so the retry comes before the end
        mails.run(handle, workers=1, block=1)
        assert [dead.errors[-1].error for dead in mails.dead] == ["LookupError: no such address"]


def test_a_handler_that_exits_has_failed_and_the_worker_goes_on(mails: tidelog.Queue) -> None:
    mails.put_many([0, 1])
    done: list[int] = []

    def handle(job: tidelog.Job) -> None:
        if job.value == 0:
            sys.exit("no")
        done.append(job.value)

    mails.run(handle, workers=1, block=0)
    assert done == [1]
    assert mails.failures()[0].error == "SystemExit: no"


def test_an_interrupt_raised_by_a_handler_ends_the_run_and_releases_its_job(
    mails: tidelog.Queue,
) -> None:
    mails.put(0)

    def handle(job: tidelog.Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mails.run(handle, workers=3)
    job = mails.get(block=0)
    assert job is not None and job.deliveries == 1


def test_the_workers_have_one_name(mails: tidelog.Queue) -> None:
    mails.put_many(range(10))
    names: set[str] = set()
    mails.run(lambda job: names.add(job.worker), worker="anna", block=0)
    assert names == {"anna"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": 0},
        {"workers": True},
        {"workers": 1001},
        {"workers": "4"},
        {"drain": -1},
        {"drain": float("nan")},
        {"block": -1},
        {"batch": 0},
        {"worker": ""},
        {"handler": "send"},
        {"handler": asyncio.sleep},
        {"handler": lambda: None},
        {"handler": lambda job, other: None},
    ],
    # Not the values: the address of a function would differ from process to process.
    ids=lambda wrong: next(iter(wrong)),
)
def test_bad_arguments(wrong: dict[str, Any], mails: tidelog.Queue) -> None:
    with pytest.raises(tidelog.DataError):
        mails.run(**{"handler": print, **wrong})


# --- the end


def test_closing_the_store_ends_a_run_in_another_thread_which_touches_no_signals(
    tmp_path: Path,
) -> None:
    mails = tidelog.queue(tmp_path / "s", "mails", fsync="no")
    before, during, ended = handlers(), list[Any](), list[int]()
    mails.put(0)

    def work() -> None:
        ended.append(mails.run(lambda job: during.append(handlers()), workers=2))

    thread = threading.Thread(target=work)
    thread.start()
    parked(mails.store, 2)
    assert mails.close() == 0
    thread.join(LONG)
    assert ended == [0]
    assert during == [before] and handlers() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_fetching_and_lets_running_jobs_end(
    number: signal.Signals, mails: tidelog.Queue, stopping: threading.Event
) -> None:
    before = handlers()
    mails.put_many(range(10))
    done: list[int] = []
    both = threading.Barrier(2)

    def handle(job: tidelog.Job) -> None:
        if both.wait(LONG) == 0:
            os.kill(os.getpid(), number)
        assert stopping.wait(LONG)
        done.append(job.value)

    assert mails.run(handle, workers=2) == 0
    assert sorted(done) == [0, 1]
    assert len(mails) == 8
    assert handlers() == before


def test_a_signal_that_another_thread_receives_ends_the_run(
    mails: tidelog.Queue, stopping: threading.Event
) -> None:
    mails.put(0)
    heard: list[bool] = []

    def main_thread_waits() -> bool:
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        return frame.f_code.co_name in ("get", "_wait")

    def handle(job: tidelog.Job) -> None:
        until(main_thread_waits)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        heard.append(stopping.wait(LONG))

    assert mails.run(handle) == 0
    assert heard == [True]


def test_more_sigterms_change_nothing(mails: tidelog.Queue, stopping: threading.Event) -> None:
    mails.put(0)

    def handle(job: tidelog.Job) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(LONG)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)  # the first Ctrl-C

    assert mails.run(handle, workers=2) == 0
    assert len(mails) == 0


@pytest.mark.parametrize("batch", [1, 4])
def test_a_handler_that_does_not_return_loses_its_job_after_the_drain(
    batch: int, mails: tidelog.Queue
) -> None:
    mails.put_many(range(8))
    go, held = threading.Event(), threading.Barrier(2)

    def handle(job: tidelog.Job) -> None:
        if held.wait(LONG) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        go.wait(LONG)

    assert mails.run(handle, workers=2, batch=batch, drain=0.01) == 2
    found = [job for job in mails.consume("other", block=0)]
    assert [job.deliveries for job in found] == [1] * 8, "a delivery was counted"
    go.set()
    until(lambda: all("tidelog-worker" not in t.name for t in threading.enumerate()))
    for job in found:
        assert job.ack(), "the handler that ended too late took the job"


def test_a_handler_that_the_program_sets_meanwhile_stays() -> None:
    before = signal.getsignal(signal.SIGINT)

    def later(number: int, frame: object) -> None: ...

    try:
        with Signals(print):
            signal.signal(signal.SIGINT, later)
        assert signal.getsignal(signal.SIGINT) is later
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_the_process_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals(print):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# --- processes: an interrupt, a fork

PROGRAM = """
import logging, os, sys, threading
import tidelog
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
logging.getLogger("tidelog.worker").handlers = []

def handle(job):
    print("running", flush=True)
    threading.Event().wait()

with tidelog.queue(sys.argv[1], "mails", fsync="no") as mails:
    print(mails.run(handle, workers=2, drain=float(sys.argv[2])), flush=True)
print("the end", flush=True)
"""


def started(path: Path, drain: float) -> subprocess.Popen[str]:
    with tidelog.queue(path, "mails", fsync="no") as mails:
        mails.put("x")
    program = f"import sys; sys.path[:0] = {sys.path!r}\n{PROGRAM}"
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path), str(drain)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if text in line:
            return
    assert child.stderr is not None
    raise AssertionError(f"{text!r} never came: {child.stderr.read()}")


def taken_at_once(path: Path) -> int:
    """The deliveries of the job that another worker gets at once."""
    with tidelog.queue(path, "mails", fsync="no") as mails:
        job = mails.get("other", block=0)
        assert job is not None
        return job.deliveries


def test_a_second_ctrl_c_ends_at_once_and_releases(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with started(path, 3600) as child:
        read_until(child, "running")
        child.send_signal(signal.SIGINT)
        read_until(child, "takes no more jobs")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=LONG)
        assert "KeyboardInterrupt" in err and "the end" not in out
        assert child.returncode == -signal.SIGINT
    assert taken_at_once(path) == 1


def test_a_process_ends_in_order_though_a_handler_never_returns(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with started(path, 0.01) as child:
        read_until(child, "running")
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=LONG)
        assert out.splitlines()[-2:] == ["1", "the end"], err
        assert child.returncode == 0
    assert taken_at_once(path) == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_of_a_fork_that_returns_from_the_handler_ends(mails: tidelog.Queue) -> None:
    mails.put(0)
    parent, codes = os.getpid(), list[int]()

    def handle(job: tidelog.Job) -> None:
        child = os.fork()
        if child:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            assert os.getpid() != parent

    mails.run(handle, workers=1, block=0)
    assert codes == [1]
    assert len(mails) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_signal_ends_a_child_of_a_fork_as_if_there_were_no_run(mails: tidelog.Queue) -> None:
    mails.put(0)
    codes: list[int] = []
    ready, begun = os.pipe()

    def handle(job: tidelog.Job) -> None:
        child = os.fork()
        if not child:
            os.write(begun, b"!")
            while True:
                signal.pause()
        # a signal that comes during the fork would be lost
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    mails.run(handle, workers=1, block=0)
    os.close(ready)
    os.close(begun)
    assert codes == [-signal.SIGTERM]


# --- faults that pass


class Broken:
    """A queue whose consumers fail first."""

    def __init__(self, queue: Any, error: Exception) -> None:
        self.queue, self.error, self.name = queue, error, queue.name

    def consume(self, **options: Any) -> Any:
        consumer = self.queue.consume(**options)
        error = self.error

        class Consumer:
            worker = "anna"
            close = staticmethod(consumer.close)
            errors = [error]

            def __iter__(self) -> Iterator[Any]:
                if self.errors:
                    raise self.errors.pop()
                return iter(consumer)

        return Consumer()


def test_a_worker_outlives_a_full_disk(
    mails: tidelog.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.api.queue.running.threads.AGAIN_SECONDS", 0.001)
    mails.put_many(range(5))
    broken = Broken(mails, tidelog.OutOfSpace("no room"))
    made = plan.make_plan(
        broken,
        lambda job: None,
        1,
        None,
        asynchronous=False,
        backend=mails._backend,
        worker="anna",
        block=0,
    )
    assert run_threads(made) == 0
    assert len(mails) == 0


def test_an_error_that_does_not_pass_ends_the_run_and_is_raised(mails: tidelog.Queue) -> None:
    broken = Broken(mails, tidelog.StorePoisoned("a sync failed"))
    with pytest.raises(tidelog.StorePoisoned):
        run_threads(
            plan.make_plan(
                broken, lambda job: None, 2, None, asynchronous=False, backend=mails._backend
            )
        )
