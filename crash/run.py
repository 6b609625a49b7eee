"""Run: workloads are recorded and explored in several processes, until the time is over or enough was done.

The unit of work is a task: one workload under one policy, with all of its lives. A worker gets a task, sends back a
report, and gets the next one. A worker whose parent is gone ends, since it reads the end of their pipe.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.crash import followers, logs, queues, replies
from tidelog.crash.calls import CALLS, DIRECTORIES, Calling
from tidelog.crash.errors import BenchError, CrashError
from tidelog.crash.explore import Effort, Explorer, Report
from tidelog.crash.followers import FOLLOWERS, leading
from tidelog.crash.full import FULL, CannotFill, Filling
from tidelog.crash.injected import ERRORS, OnDisk, inject
from tidelog.crash.killed import KILL, kill
from tidelog.crash.lives import Step
from tidelog.crash.logs import LOG
from tidelog.crash.preload.library import NoCompiler, NotLoaded
from tidelog.crash.queues import QUEUES
from tidelog.crash.replies import REPLIES
from tidelog.crash.rot import ROT, Rotter
from tidelog.crash.served import Files, Memory, Stage, be_quiet
from tidelog.crash.servers import SERVERS, kill_servers
from tidelog.crash.small import SMALL, explore_small
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import Trace, Tree, Unit
from tidelog.crash.traced import LESS, NoTracer, Tracing
from tidelog.crash.workloads import jumping, long, record, small
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.store.errors import TidelogError

STORE: Final = "store"
CHECKPOINTS: Final = "checkpoints"
DOUBLE: Final = "double"
# The layers in which power is lost.
POWER: Final = (LOG, SMALL, STORE, CHECKPOINTS, DOUBLE, REPLIES, QUEUES, FOLLOWERS)
# The layers that may work on the disk of the user.
FILES: Final = (ROT, ERRORS, CALLS, KILL, SERVERS)
LAYERS: Final = (*POWER, *FILES, FULL)

LONG_STEPS: Final = 20
LOG_STEPS: Final = 30
QUEUE_STEPS: Final = 30
LOG_DRAWN: Final = 24  # states of each moment of a log
INJECTED_STEPS: Final = 10
INJECTED: Final = 100  # errors of a workload
CALLED: Final = 100  # system calls of a workload that fail
TRACED: Final = 8  # the same by strace
FILLED_STEPS: Final = 24
FILLED: Final = 40  # file systems of a workload that are too small
LIVES_MAX: Final = 3
AGAIN: Final = 0.125  # of the images, the share of which more than the contents is tried
SNAPSHOTS: Final = 2  # of a life with some
BUDGET: Final = 4096  # bytes in memory after a checkpoint: nearly all is evicted, and read again


class Task(NamedTuple):
    """One workload.

    layer   any but DOUBLE
    seed    everything random of the task comes from it
    number  even: a long workload, and in every second one the clock jumps; odd: a small one.
            Of SMALL: that chunk of all small workloads. Of ERRORS, QUEUES and FOLLOWERS the odd ones are on files; of
            CALLS, calls of LMDB fail
    double  recoveries lose power too
    """

    layer: str
    policy: str
    seed: str
    number: int
    double: bool


def tasks(layers: set[str], policies: list[str], seed: str) -> Iterator[Task]:
    """Tasks without end, by turns of policy and layer. DOUBLE takes its first crashes from STORE or CHECKPOINTS."""
    first = [layer for layer in LAYERS if layer in layers and layer != DOUBLE]
    if DOUBLE in layers and not layers & {STORE, CHECKPOINTS}:
        first.insert(0, STORE)
    for number in count():
        for policy in policies:
            for layer in first:
                double = DOUBLE in layers and layer in (STORE, CHECKPOINTS)
                yield Task(layer, policy, f"{seed}/{number}", number, double)


def do(task: Task, scratch: Path, stopping: Callable[[], bool] = lambda: False) -> Report:
    """Do one task. Raises BenchError if the store is wrong without any crash or damage."""
    started = time.monotonic()
    report = _do(task, scratch, stopping)
    others = sum(counts.seconds for counts in report.counts.values())  # of double crashes
    report.of(task.layer).seconds += time.monotonic() - started - others
    return report


def _do(task: Task, scratch: Path, stopping: Callable[[], bool]) -> Report:
    rng = random.Random(f"{task.seed}/{task.layer}/{task.policy}")
    if task.layer == ROT:
        return _rot(task, scratch, rng, stopping)
    if task.layer == ERRORS:
        return _inject(task, scratch, rng, stopping)
    if task.layer == CALLS:
        return _fail_calls(task, scratch, rng, stopping)
    if task.layer == FULL:
        return _fill(task, scratch, rng, stopping)
    if task.layer == KILL:
        return _kill(task, scratch, rng, stopping)
    if task.layer == SERVERS:
        return kill_servers(task.policy, task.seed, scratch, rng, stopping=stopping)
    if task.layer == SMALL:
        return explore_small(task.number, task.policy, task.seed, rng, stopping)
    if task.layer == REPLIES:
        return _replies(task, rng, stopping)
    if task.layer == LOG:
        return _log(task, rng, stopping)
    if task.layer == FOLLOWERS:
        return _followers(task, scratch, rng, stopping)
    if task.layer == QUEUES:
        return _queues(task, scratch, rng, stopping)
    return _explore(task, scratch, rng, stopping)


def _rot(task: Task, scratch: Path, rng: random.Random, stopping: Callable[[], bool]) -> Report:
    """Record a life with checkpoints and a snapshot, and damage what its end and a kill leave."""
    stage = Files(scratch)
    steps = long(rng, LONG_STEPS, checkpoints=True)
    steps.insert(rng.randrange(len(steps) // 2, len(steps)), ["snapshot"])
    trace = record(stage, task.policy, steps, {"seed": task.seed, "life": 1})
    stage.clear()
    rotter = Rotter(scratch, rng, stopping=stopping)
    try:
        last = len(trace.operations)
        for time in (last, rng.randrange(last // 2, last)):
            if not rotter.report.findings:
                rotter.rot(trace, time)
    finally:
        rotter.close()
    return rotter.report


def _inject(task: Task, scratch: Path, rng: random.Random, stopping: Callable[[], bool]) -> Report:
    """Fail the disk of a workload, by turns in memory and on files with checkpoints."""
    files = task.number % 2 == 1
    steps = long(rng, INJECTED_STEPS, checkpoints=files, threads=False)
    with closing(OnDisk(_halved(task.policy, task.seed, rng, steps), scratch, files)) as suffering:
        return inject(suffering, rng, INJECTED, stopping)


def _fail_calls(
    task: Task, scratch: Path, rng: random.Random, stopping: Callable[[], bool]
) -> Report:
    """Fail system calls of a workload with checkpoints, by turns all and those of LMDB."""
    steps = long(rng, INJECTED_STEPS, checkpoints=True, threads=False)
    scene = _halved(task.policy, task.seed, rng, steps)
    for life in scene.lives:
        life.insert(rng.randrange(len(life) + 1), ["checkpoint"])
    below = DIRECTORIES[task.number % len(DIRECTORIES)]
    try:
        try:
            with closing(Calling(scene, below, scratch)) as suffering:
                return inject(suffering, rng, CALLED, stopping)
        except (NoCompiler, NotLoaded) as error:
            reason = str(error)
        with closing(Tracing(scene, below, scratch)) as tracing:
            report = inject(tracing, rng, TRACED, stopping)
    except NoTracer as error:
        return Report(not_run={CALLS: f"{reason}; {error}"})
    report.less[CALLS] = LESS
    return report


def _fill(task: Task, scratch: Path, rng: random.Random, stopping: Callable[[], bool]) -> Report:
    """Run a workload with checkpoints on file systems that are too small for it."""
    steps = long(rng, FILLED_STEPS, checkpoints=True, threads=False)
    scene = _halved(task.policy, task.seed, rng, steps)
    for life in scene.lives:
        life.insert(rng.randrange(len(life) + 1), ["checkpoint"])
    try:
        with closing(Filling(scene, scratch)) as suffering:
            return inject(suffering, rng, FILLED, stopping)
    except CannotFill as error:
        return Report(not_run={FULL: str(error)})


def _halved(policy: str, seed: str, rng: random.Random, steps: list[Step]) -> Scene:
    first = rng.randrange(1, len(steps))
    return Scene(policy, (steps[:first], steps[first:]), seed)


def _kill(task: Task, scratch: Path, rng: random.Random, stopping: Callable[[], bool]) -> Report:
    """Kill the process of a workload on files with checkpoints."""
    return kill(scene_of(task.policy, task.seed, rng), scratch, rng, stopping=stopping)


def scene_of(policy: str, seed: str, rng: random.Random) -> Scene:
    """A workload of two lives with checkpoints."""
    return _halved(policy, seed, rng, long(rng, INJECTED_STEPS, checkpoints=True))


def _replies(task: Task, rng: random.Random, stopping: Callable[[], bool]) -> Report:
    """Record a server and explore it, in memory."""
    stage = Memory()
    explorer = Explorer(stage, rng, Effort(double=0, killed=0), REPLIES, stopping)
    explorer.explore(replies.record(stage, task.policy, task.seed, rng))
    return explorer.report


def _log(task: Task, rng: random.Random, stopping: Callable[[], bool]) -> Report:
    """Explore lives of a log alone, in memory."""
    effort = Effort(drawn=LOG_DRAWN, double=0, killed=0)
    stage = Memory()
    explorer = Explorer(stage, rng, effort, LOG, stopping, logs.serve)

    def record_life(about: dict[str, Any], base: Tree | None, before: list[Unit]) -> Trace:
        return logs.record(stage, task.policy, logs.long(rng, LOG_STEPS), about, base, before)

    return _lives(explorer, record_life, task.seed, rng.randint(1, LIVES_MAX), stopping)


def _queues(task: Task, scratch: Path, rng: random.Random, stopping: Callable[[], bool]) -> Report:
    """Explore lives of queues, by turns in memory and on files with checkpoints."""
    files = task.number % 2 == 1
    stage: Stage = Files(scratch) if files else Memory()
    explorer = Explorer(stage, rng, Effort(double=0, killed=0), QUEUES, stopping, queues.serve)

    def record_life(about: dict[str, Any], base: Tree | None, before: list[Unit]) -> Trace:
        steps = queues.long(rng, QUEUE_STEPS, checkpoints=files)
        return queues.record(stage, task.policy, steps, about, base, before)

    try:
        return _lives(explorer, record_life, task.seed, rng.randint(1, LIVES_MAX), stopping)
    finally:
        stage.clear()


def _followers(
    task: Task, scratch: Path, rng: random.Random, stopping: Callable[[], bool]
) -> Report:
    """Explore lives of a follower, by turns in memory and on files with checkpoints. Its leader has one life."""
    files = task.number % 2 == 1
    lives = rng.randint(1, LIVES_MAX)
    places = scratch / "leader", scratch / "follower"
    disk = RealDisk()
    for place in places:
        disk.mkdir(place)
    theirs, ours = (Files(place) if files else Memory() for place in places)
    explorer = Explorer(ours, rng, Effort(double=0, killed=0), FOLLOWERS, stopping)
    try:
        with leading(theirs, task.seed, checkpoints=files) as leader:

            def record_life(about: dict[str, Any], base: Tree | None, before: list[Unit]) -> Trace:
                return followers.record(ours, task.policy, leader, about, base, len(before))

            return _lives(explorer, record_life, task.seed, lives, stopping)
    finally:
        for place in places:
            recipe.remove_tree(disk, place)


def _explore(task: Task, scratch: Path, rng: random.Random, stopping: Callable[[], bool]) -> Report:
    checkpoints = task.layer == CHECKPOINTS
    stage: Stage = Files(scratch) if checkpoints else Memory()
    effort = Effort(again=AGAIN) if task.double else Effort(double=0, killed=0, again=AGAIN)
    explorer = Explorer(stage, rng, effort, task.layer, stopping)
    whole = task.number % 2 == 0

    def record_life(about: dict[str, Any], base: Tree | None, before: list[Unit]) -> Trace:
        if whole:
            steps = long(rng, LONG_STEPS, checkpoints=checkpoints)
            if checkpoints:
                about["budget"] = BUDGET
            if checkpoints and task.number % 4 == 0:
                for _ in range(SNAPSHOTS):
                    steps.insert(rng.randrange(len(steps)), ["snapshot"])
            if task.number % 4 == 2:
                steps = jumping(random.Random(f"{task.seed}/{about['life']}/clock"), steps)
        else:
            steps = small(rng, checkpoints=checkpoints)
        return record(stage, task.policy, steps, about, base, before)

    lives = rng.randint(1, LIVES_MAX) if whole else 1
    try:
        return _lives(explorer, record_life, task.seed, lives, stopping)
    finally:
        stage.clear()


def _lives(
    explorer: Explorer,
    record_life: Callable[[dict[str, Any], Tree | None, list[Unit]], Trace],
    seed: str,
    lives: int,
    stopping: Callable[[], bool],
) -> Report:
    """Record and explore lives, each of which begins with what a crash left of the one before."""
    base: Tree | None = None
    before: list[Unit] = []
    for life in range(1, lives + 1):
        trace = record_life({"seed": seed, "life": life}, base, before)
        explorer.explore(trace)
        if explorer.report.findings or stopping():
            break
        left = explorer.next_base(trace)
        if left is None:
            break
        base, before = left[0], trace.units[: left[1]]
    return explorer.report


def _work(pipe: Connection, scratch: Path, files: Path) -> None:
    """The worker process: do tasks until there are no more. `files` is the scratch directory of the layers FILES."""
    be_quiet()
    disk = RealDisk()
    places = {scratch, files}
    try:
        while True:
            task = pipe.recv()
            if task is None:
                return
            try:
                for place in places:
                    if not disk.exists(place):
                        disk.mkdir(place)
                pipe.send(do(task, files if task.layer in FILES else scratch, pipe.poll))
            except Exception as error:
                pipe.send(error)
                known = isinstance(error, (CrashError, OSError, TidelogError))
                if known or not all(map(disk.exists, places)):
                    return  # the parent says it
                raise  # the traceback of a fault of the bench
    except (EOFError, ConnectionError):
        pass  # the parent is gone
    finally:
        for place in places:
            with suppress(FileNotFoundError):
                recipe.remove_tree(disk, place)


class _Worker(NamedTuple):
    process: SpawnProcess
    pipe: Connection


def run(
    work: Iterator[Task],
    scratch: Path,
    jobs: int,
    seconds: float,
    tell: Callable[[Report], object] = lambda report: None,
    files: Path | None = None,
) -> Report:
    """Do tasks in `jobs` processes until `seconds` are over, none is left, or something was found.

    scratch   an existing directory for stores with checkpoints, best on tmpfs
    tell      called with the report so far, after each task
    files     an existing directory for the stores of the layers FILES, on the disk to be tried; None for `scratch`

    A KeyboardInterrupt is passed on when all workers have ended. Raises what a task raised.
    """
    end = time.monotonic() + seconds
    total = Report()
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    busy: dict[Connection, tuple[_Worker, Task]] = {}
    failed: Exception | None = None
    try:
        # The start of multiprocessing's tracker of resources unblocks Ctrl-C, so it comes first.
        resource_tracker.ensure_running()
        # The processes inherit that Ctrl-C is blocked. The parent gets it when all have begun, and ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for number in range(jobs):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_work,
                    args=(theirs, scratch / str(number), (files or scratch) / str(number)),
                    name=f"tidelog-crash-{number}",
                )
                process.start()
                theirs.close()
                workers.append(_Worker(process, ours))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for worker in workers:
            _give(worker, work, busy)
        while busy:
            ready = wait(list(busy), max(0.0, end - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                worker, task = busy.pop(pipe)
                answer = _answer(worker, task)
                if isinstance(answer, Exception):
                    raise answer
                total.add(answer)
                tell(total)
                if not total.findings:
                    _give(worker, work, busy)
            if total.findings:
                break
    except Exception as error:
        failed = error
        raise
    finally:
        for worker in workers:
            # Anything in the pipe stops a task. Its report so far still counts.
            _send(worker)
        for worker in workers:
            if worker.pipe in busy and failed is None:
                answer = _answer(*busy[worker.pipe])
                if isinstance(answer, Report):
                    total.add(answer)
            worker.process.join()
            worker.pipe.close()
        tell(total)
    return total


def _give(
    worker: _Worker, work: Iterator[Task], busy: dict[Connection, tuple[_Worker, Task]]
) -> None:
    task = next(work, None)
    if task is not None:
        with suppress(OSError):  # the process has ended; `_answer` says how
            worker.pipe.send(task)
        busy[worker.pipe] = worker, task


def _answer(worker: _Worker, task: Task) -> Report | Exception:
    """The answer to a task. A worker that died without one is an error: no state may kill the process."""
    try:
        answer = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        code = worker.process.exitcode
        return BenchError(
            f"the process of {task} ended with exit code {code} and without an answer"
        )
    assert isinstance(answer, (Report, Exception))
    return answer


def _send(worker: _Worker) -> None:
    with suppress(OSError):  # it has ended already
        worker.pipe.send(None)
