"""Group commit: with threads, event-loop clients, failing syncs and interrupts."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from tests.until import until

from tidelog.aof.commit import EverySecond, GroupCommit, _Waiter
from tidelog.aof.errors import LogPoisoned

PATIENCE_S = 60.0


class Device:
    """Something to sync: `written` grows, `sync` takes the gate and makes it durable."""

    def __init__(self) -> None:
        self.written = 0
        self.rounds = 0
        self.gate = threading.Semaphore(1 << 30)
        self.entered = threading.Semaphore(0)
        self.failure: OSError | None = None
        self._lock = threading.Lock()
        self._one = threading.Lock()

    def write(self) -> int:
        with self._lock:
            self.written += 1
            return self.written

    def sync(self) -> int:
        with self._one:
            written = self.written
            self.rounds += 1
            self.entered.release()
            self.gate.acquire()
            if self.failure is not None:
                raise self.failure
            return written

    def hold(self) -> None:
        """From now on each sync waits until `gate` is released."""
        self.gate = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)


def started(*targets: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    return threads


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a waiter hangs"


def queued(commit: GroupCommit) -> int:
    return len(commit._waiters)


def test_alone_the_caller_syncs_and_no_thread_is_started() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    for _ in range(3):
        commit.wait(device.write())
    assert (commit.synced, device.rounds, commit._thread) == (3, 3, None)
    commit.wait(2)
    assert device.rounds == 3
    commit.stop()


def test_to_lead_is_to_sync_here_unless_another_does() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    lsn = device.write()
    assert commit.lead() and commit.synced == lsn and commit._thread is None
    device.hold()
    late = device.write()
    (other,) = started(lambda: commit.wait(late))
    device.entered.acquire()
    assert not commit.lead()
    device.gate.release()
    joined([other])
    assert commit.synced == late
    device.gate = threading.Semaphore(1 << 30)
    device.failure = OSError(errno.EIO, "injected")
    device.write()
    assert commit.lead() and commit.failure is not None and commit.synced == late
    assert not commit.lead()


def test_who_leads_hands_over_to_those_who_came_meanwhile() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    device.write()
    device.hold()
    (leader,) = started(commit.lead)
    device.entered.acquire()
    late = device.write()
    (other,) = started(lambda: commit.wait(late))
    until(lambda: queued(commit) == 1)
    device.gate.release()  # the leader's round began before that was written
    joined([leader])
    device.gate.release()
    joined([other])
    assert commit.synced == late
    commit.stop()


def test_one_sync_serves_all_who_gathered() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    device.hold()
    first = device.write()
    threads = started(lambda: commit.wait(first))
    assert device.entered.acquire(timeout=PATIENCE_S)
    threads += started(*[lambda: commit.wait(device.write())] * 15)
    until(lambda: queued(commit) == 15)
    device.gate.release(2)
    joined(threads)
    assert device.rounds == 2 and commit.synced == 16
    commit.stop()


def test_sixteen_threads() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    wrong: list[int] = []

    def work() -> None:
        for _ in range(300):
            lsn = device.write()
            commit.wait(lsn)
            if commit.synced < lsn:
                wrong.append(lsn)

    joined(started(*[work] * 16))
    assert not wrong and commit.synced == 4800
    commit.stop()


def test_a_failed_sync_tells_everyone_and_is_never_forgotten() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    told: list[BaseException] = []
    answers: list[LogPoisoned | None] = []

    def work(lsn: int) -> None:
        try:
            commit.wait(lsn)
        except LogPoisoned as error:
            told.append(error)

    device.hold()
    device.failure = OSError(errno.EIO, "the medium is gone")
    threads = started(lambda: work(device.write()))
    assert device.entered.acquire(timeout=PATIENCE_S)
    threads += started(*[lambda: work(device.write())] * 10)
    until(lambda: queued(commit) == 10)
    commit.subscribe(11, answers.append)
    device.gate.release(1 << 20)
    joined(threads)
    assert len(told) == 11 and all("outcome unknown" in str(error) for error in told)
    until(lambda: len(answers) == 1)
    assert isinstance(answers[0], LogPoisoned)
    device.failure = None  # the next fsync would succeed, and lie
    rounds = device.rounds
    with pytest.raises(LogPoisoned, match="the medium is gone"):
        commit.wait(device.write())
    assert device.rounds == rounds and commit.synced == 0
    commit.stop()


def interrupted(
    commit: GroupCommit,
    lsn: int,
    when: Callable[[], object],
    then: Callable[[], object] = lambda: None,
) -> None:
    """The main thread waits, and SIGINT comes once `when` returned; `then` is called behind it."""

    def interrupt() -> None:
        when()
        os.kill(os.getpid(), signal.SIGINT)
        then()

    threads = started(interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit.wait(lsn)
    joined(threads)


def test_an_interrupted_waiter_leaves_the_queue() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    device.hold()
    threads = started(lambda: commit.wait(device.write()))
    assert device.entered.acquire(timeout=PATIENCE_S)
    threads += started(lambda: commit.wait(device.write()))
    until(lambda: queued(commit) == 1)
    interrupted(commit, device.write(), lambda: until(lambda: queued(commit) == 2))
    assert queued(commit) == 1
    threads += started(lambda: commit.wait(device.write()))
    until(lambda: queued(commit) == 2)
    device.gate.release(1 << 20)
    joined(threads)
    commit.wait(device.write())
    commit.stop()


def test_an_interrupted_waiter_passes_the_chain_on() -> None:
    """Interrupted when it is in a chain already: all behind it still go on."""
    device = Device()
    commit = GroupCommit(device.sync, 0)
    commit._leading = True  # nobody else does: this test builds the chain
    threads: list[threading.Thread] = []
    chain: list[_Waiter] = []

    def build() -> None:
        until(lambda: queued(commit) == 1)
        threads.extend(started(*[lambda: commit.wait(2)] * 3))
        until(lambda: queued(commit) == 4)
        with commit._gate:
            chain.extend(commit._waiters)
            commit._waiters = []
            for waiter, behind in zip(chain, chain[1:]):
                waiter.next = behind
            commit.synced = 2

    def go() -> None:
        time.sleep(0.1)  # so that the interrupt usually strikes before it; then it waits for this
        chain[0].go = True
        chain[0].lock.release()

    interrupted(commit, 1, build, go)
    joined(threads)
    commit.stop()


def test_an_interrupted_leader_hands_over() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    device.hold()

    def when() -> None:
        assert device.entered.acquire(timeout=PATIENCE_S)
        threads.extend(started(*[lambda: commit.wait(device.write())] * 3))
        until(lambda: queued(commit) == 3)

    threads: list[threading.Thread] = []
    lsn = device.write()
    interrupted(commit, lsn, when, lambda: device.gate.release(1 << 20))
    joined(threads)
    assert commit.failure is None
    commit.stop()


def test_a_leader_that_is_interrupted_before_it_hands_over_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def strikes(commit: GroupCommit) -> None:
        raise KeyboardInterrupt

    commit = GroupCommit(iter(range(1, 9)).__next__, 0)
    with monkeypatch.context() as patch:
        patch.setattr(GroupCommit, "_hand_over", strikes)
        with pytest.raises(KeyboardInterrupt):
            commit.wait(1)
    joined(started(lambda: commit.wait(2), lambda: commit.wait(2)))
    commit.stop()


def test_a_lost_link_of_the_chain_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    device.hold()
    first = device.write()
    leader = started(lambda: commit.wait(first))
    assert device.entered.acquire(timeout=PATIENCE_S)
    second = device.write()
    waiting = started(lambda: commit.wait(second), lambda: commit.wait(second))
    until(lambda: queued(commit) == 2)
    monkeypatch.setattr("tidelog.aof.commit._pass_on", lambda waiter: None)
    device.gate.release(9)
    joined(leader + waiting)
    commit.stop()


def test_an_interrupted_waiter_looks_for_a_lost_link_no_longer_than_others() -> None:
    commit = GroupCommit(Device().sync, 0)
    waiter, behind = _Waiter(1), _Waiter(1)
    waiter.enlisted, waiter.next = True, behind  # in a chain, whose link to it was lost
    joined(started(lambda: commit._resign(waiter)))
    assert behind.go


def test_event_loop_clients_of_a_round_are_one_call() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    calls: list[int] = []
    done = threading.Event()

    def callback(error: LogPoisoned | None) -> None:
        calls.append(commit.synced)
        done.set()

    device.hold()
    for _ in range(5):
        commit.subscribe(device.write(), callback)
    assert device.entered.acquire(timeout=PATIENCE_S)
    device.gate.release(1 << 20)
    assert done.wait(PATIENCE_S)
    until(lambda: not commit._subscribers)
    assert commit.synced == 5 and 1 <= len(calls) <= 2
    commit.subscribe(3, callback)  # decided already: at once, from here
    assert calls[-1] == 5
    commit.stop()
    answers: list[LogPoisoned | None] = []
    commit.subscribe(device.write(), answers.append)
    assert isinstance(answers[0], LogPoisoned)


def test_a_callback_that_raises_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    done = threading.Event()

    def wrong(error: LogPoisoned | None) -> None:
        raise RuntimeError("a client's mistake")

    commit.subscribe(device.write(), wrong)
    until(lambda: commit.synced == 1)
    commit.subscribe(device.write(), lambda error: done.set())
    assert done.wait(PATIENCE_S)
    assert "callback failed" in caplog.text
    commit.stop()


def test_stop_lets_everyone_go() -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    device.hold()
    told: list[BaseException] = []

    def work() -> None:
        try:
            commit.wait(device.write())
        except LogPoisoned as error:
            told.append(error)

    threads = started(work)
    assert device.entered.acquire(timeout=PATIENCE_S)
    threads += started(*[work] * 3)
    until(lambda: queued(commit) == 3)
    threads += started(commit.stop)
    until(lambda: commit._stopping)
    device.gate.release(1 << 20)
    joined(threads)
    assert len(told) <= 3


class FakeLog:
    """The clock and the exposure that the everysec thread sees."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.parked = False

    def oldest(self) -> float | None:
        return self.since

    def park(self, parked: bool) -> None:
        self.parked = parked


def test_everysec_syncs_after_one_second_and_parks_after_two() -> None:
    device, log = Device(), FakeLog()
    commit = GroupCommit(device.sync, 0)
    device.hold()
    policy = EverySecond(commit, log.oldest, log.park)
    policy.stop()  # its thread; the test ticks
    assert policy.tick(100.0) == 1.0
    log.since = 100.5
    device.write()
    assert policy.tick(101.0) == pytest.approx(0.5)
    assert device.rounds == 0 and not log.parked
    assert policy.tick(101.5) == pytest.approx(1.0)
    assert device.entered.acquire(timeout=PATIENCE_S)
    assert not log.parked
    assert policy.tick(102.5) < 0.1
    assert log.parked
    device.gate.release(1 << 20)
    until(lambda: commit.synced == 1)
    log.since = None
    policy.tick(103.0)
    assert not log.parked
    commit.stop()


def test_without_a_syncer_thread_callers_sync_for_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system gives no more threads: slower, and nobody hangs."""
    device = Device()
    commit = GroupCommit(device.sync, 0)
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "tidelog-sync":
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    heard: list[LogPoisoned | None] = []
    commit.subscribe(device.write(), heard.append)
    assert heard == [None]
    device.hold()
    lsns = [device.write() for _ in range(4)]
    threads = started(lambda: commit.wait(lsns[0]))
    assert device.entered.acquire(timeout=PATIENCE_S)
    late = [device.write() for _ in range(3)]
    threads += started(*(lambda lsn=lsn: commit.wait(lsn) for lsn in late))
    until(lambda: queued(commit) == 3)
    commit.request()
    commit.subscribe(device.write(), heard.append)
    for _ in range(10):
        device.gate.release()
    joined(threads)
    commit.wait(device.write())
    assert heard == [None, None] and not commit._leading
    monkeypatch.undo()
    commit.subscribe(device.write(), heard.append)
    device.gate.release()
    until(lambda: len(heard) == 3)
    commit.stop()


def test_an_interrupted_start_of_the_syncer_leaves_a_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device()
    commit = GroupCommit(device.sync, 0)
    real = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        real(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        commit.subscribe(device.write(), lambda error: None)
    monkeypatch.undo()
    heard: list[LogPoisoned | None] = []
    commit.subscribe(device.write(), heard.append)
    until(lambda: heard == [None])
    commit.stop()
    until(lambda: not any(t.name == "tidelog-sync" for t in threading.enumerate()))
