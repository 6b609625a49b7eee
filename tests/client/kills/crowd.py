"""Crowd: putters and workers of one shared store, which are killed at random, and its owner with them. In a storm, some
are asked to end instead, and some are stopped for a while.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.client.kills.evidence import Call, Left, Reader, Story
from tests.client.kills.queues import BY_NAME, EFFECTS, FAR_S, RETRY_AFTER_S, TIMEOUT_S
from tests.client.kills.remains import open_files
from tests.client.owners import is_running, owner_of, owners

import tidelog

HANG_S: Final = 5.0  # no call takes longer, beyond the time that it was told to wait
START_S: Final = 0.5  # a machine that is not busy imports an owner in less
LOOK_S: Final = 0.004
ROLES: Final = ("put", "put", "work", "work", "work")
STORM: Final = ("put", "put", "work", "work", "awork", "awork")
NAMED: Final = 2  # the place whose processes have the same name, so that each gets the jobs of the one before it
NAME: Final = "named"
MARK: Final = (
    "TEST_CROWD_OF"  # in the environment of all processes of a crowd, and of those that they start
)
OWNERS: Final = 0.25  # share of the kills
TWICE: Final = 0.2  # of the owner's kills: the next owner is killed too, while it begins
FREEZES: Final = 0.03
# of what is done in a storm: a peer or the owner is asked to end; the owner is stopped for longer than leases last; a
# peer for less
TERMS, OWNER_TERMS, OWNER_FREEZES, BLINKS = 0.2, 0.04, 0.02, 0.05
END_S: Final = 10.0  # one that is asked to end does so in this time
BETWEEN: Final = 10  # calls between two kills, at least
PAUSE_S: Final = 0.2  # after a kill, at most
# What an owner has without clients: the socket on which it listens, a pair that wakes its loop, and threads, some of
# which start when they are needed.
OWN_SOCKETS, OWN_THREADS = 3, 6


def within(seconds: float, true: Callable[[], object], what: Callable[[], str]) -> float:
    """Return as soon as `true()` is; fail when the seconds are over, later on a busy machine. Returns the factor.

    The machine is measured half-way, too: at the end it may be less busy.
    """
    begun, factor, half_way = time.monotonic(), 1.0, False
    while not true():
        passed = time.monotonic() - begun
        if passed > seconds * factor or passed > seconds / 2 and not half_way:
            half_way, factor = True, max(factor, slowness())
            assert passed <= seconds * factor, f"{what()} ({passed:.1f} s, {factor:.1f} times slow)"
        time.sleep(LOOK_S)
    return factor


def slowness(longest: float = 12 * HANG_S) -> float:
    """How much slower than usual the machine starts an owner now, measured for `longest` seconds: 1 = not slower."""
    begun = time.monotonic()
    words = [sys.executable, "-c", "import tidelog.client.owner"]
    # If it does not end in time, the machine is at least that slow.
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(words, check=True, timeout=longest)
    return max(1.0, (time.monotonic() - begun) / START_S)


class Crowd:
    """See the module docstring."""

    program = "tests.client.kills.peer"

    def __init__(self, root: Path, policy: str, seed: int, roles: Sequence[str] = ROLES) -> None:
        self.root, self.policy, self.pick = root, policy, random.Random(seed)
        self.roles = roles
        self.acts = Counter[str]()
        self.readers: dict[str, Reader] = {}
        self.story = Story([])
        self.kills = 0
        self._numbers = count(1)
        self.living: list[tuple[str, subprocess.Popen[bytes]]] = []
        for place in range(len(self.roles)):
            self.living.append(self._start(place))

    def _start(self, place: int) -> tuple[str, subprocess.Popen[bytes]]:
        process = f"{self.roles[place]}{next(self._numbers)}"
        path = self.root.parent / f"{process}.facts"
        name = NAME if place == NAMED else process
        seed = str(self.pick.randrange(1 << 30))
        words = [self.roles[place], str(self.root), name, seed, self.policy, str(path)]
        self.readers[process] = Reader(path)
        self.story.started[process] = time.monotonic_ns()
        with path.with_suffix(".err").open("wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", self.program, *words],
                stderr=errors,
                env={**os.environ, MARK: str(self.root)},
            )
        return process, child

    def first_steps(self) -> None:
        """Until each process has done something."""
        begun = lambda: all(map(self._has_begun, self.living))  # noqa: E731
        self._within(4 * HANG_S, begun, self.errors)

    def _has_begun(self, one: tuple[str, subprocess.Popen[bytes]]) -> bool:
        process, child = one
        assert child.poll() is None, self.errors()
        self.readers[process].read()
        return len(self.readers[process].calls) > 2

    # --- one kill

    def act(self) -> None:
        """Do something to somebody, once the crowd has done something, and see that the others get on."""
        self._look_at_clocks()
        before = self._calls()
        self._within(2 * HANG_S, lambda: self._calls() > before + BETWEEN, lambda: "nobody gets on")
        place = self.pick.randrange(len(self.roles))
        shares = self.shares()
        (act,) = self.pick.choices(list(shares), list(shares.values()))
        self.acts[act] += 1
        self.do(act, place)
        time.sleep(self.pick.uniform(0, PAUSE_S))

    def shares(self) -> dict[str, float]:
        """The acts on processes, and their shares."""
        shares = {"freeze": FREEZES, "kill an owner": OWNERS, "kill": 1 - FREEZES - OWNERS}
        if self.roles is STORM:
            shares |= {"end": TERMS, "end an owner": OWNER_TERMS}
            shares |= {"freeze an owner": OWNER_FREEZES, "blink": BLINKS}
        return shares

    def do(self, act: str, place: int) -> None:
        """Do one of these. `place`: of the process that it is done to, unless it is the owner."""
        if act == "freeze":
            self._freeze(place, 1.3 * RETRY_AFTER_S)
        elif act == "blink":
            self._freeze(place, self.pick.uniform(0, 0.8 * RETRY_AFTER_S))
        elif act == "kill an owner":
            killed = self._kill_owner()
            if killed and self.pick.random() < TWICE:
                self._kill_next_owner(killed)
            self.others_get_on()
        elif act == "end an owner":
            self._kill_owner(signal.SIGTERM)
            self.others_get_on()
        elif act == "freeze an owner":
            self._freeze_owner()
            self.others_get_on()
        elif act == "end":
            self._end_peer(place)
        else:
            self._kill_peer(place)

    def _look_at_clocks(self) -> None:
        """A time server may move the wall clock during a run."""
        ahead, story = time.time_ns() - time.monotonic_ns(), self.story
        least, most = story.wall_ns or (ahead, ahead)
        story.wall_ns = min(ahead, least), max(ahead, most)

    def _calls(self) -> int:
        for process, child in self.living:
            assert child.poll() is None, self.errors()
            self.readers[process].read()
        return sum(len(reader.calls) for reader in self.readers.values())

    def _kill_owner(self, number: int = signal.SIGKILL) -> int:
        """Kill the process that LOCK names, or ask it to end. Returns its ID, 0 if there is none."""
        with suppress(ProcessLookupError, FileNotFoundError, ValueError):
            pid = owner_of(self.root)
            os.kill(pid, number)
            if number == signal.SIGTERM:
                self._within(END_S, lambda: not is_running(pid), lambda: "the owner does not end")
            else:
                self.kills += 1
            self.story.owners_killed.append(time.monotonic_ns())
            return pid
        return 0

    def _freeze_owner(self) -> None:
        """Stop it for longer than leases last."""
        with suppress(ProcessLookupError, FileNotFoundError, ValueError):
            pid, begin = owner_of(self.root), time.monotonic_ns()
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.3 * RETRY_AFTER_S)
            os.kill(pid, signal.SIGCONT)
            self.story.owners_frozen.append((begin, time.monotonic_ns()))

    def _kill_next_owner(self, before: int) -> None:
        def another() -> bool:
            with suppress(FileNotFoundError, ValueError):
                return owner_of(self.root) != before
            return False

        self._within(HANG_S, another, lambda: "nobody starts an owner")
        time.sleep(self.pick.uniform(0, 0.05))
        self._kill_owner()

    def _kill_peer(self, place: int) -> None:
        process, child = self.living[place]
        assert child.poll() is None, self.errors()
        child.kill()
        child.wait(HANG_S)
        self.story.killed[process] = time.monotonic_ns()
        self.kills += 1
        self.living[place] = self._start(place)

    def _end_peer(self, place: int) -> None:
        """Ask a process to end; now and then the owner is killed meanwhile."""
        process, child = self.living[place]
        if not self._has_begun(self.living[place]):
            return self._kill_peer(place)
        child.send_signal(signal.SIGTERM)
        seconds = END_S
        if self.pick.random() < TWICE:
            time.sleep(self.pick.uniform(0, 0.05))
            self._kill_owner()
            seconds += HANG_S  # it gives back its jobs to the next owner
        self._within(
            seconds, lambda: child.poll() is not None, lambda: self._hanging_end(process, child)
        )
        assert child.returncode == 0, f"{process} ended with {child.returncode}: {self.errors()}"
        self.story.killed[process] = time.monotonic_ns()
        self.story.ended.add(process)
        self.living[place] = self._start(place)

    def _hanging_end(self, process: str, child: subprocess.Popen[bytes]) -> str:
        child.send_signal(signal.SIGUSR1)
        time.sleep(1)
        reader = self.readers[process]
        reader.read()
        return f"{process} does not end; open calls: {list(reader.open.values())}; {self.errors()}"

    def _freeze(self, place: int, seconds: float) -> None:
        """Stop a process for so long."""
        process, child = self.living[place]
        begin = time.monotonic_ns()
        child.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        child.send_signal(signal.SIGCONT)
        self.story.frozen.append((process, begin, time.monotonic_ns()))

    def others_get_on(self) -> None:
        """Every call that was under way comes to an end."""
        now = time.monotonic_ns()
        readers = [self.readers[process] for process, _ in self.living]
        for reader in readers:
            reader.read()
        waits = [call for reader in readers for call in reader.open.values()]

        def stuck() -> list[Call]:
            return [call for reader in readers for call in reader.open.values() if call.begin < now]

        def gets_on() -> bool:
            for reader in readers:
                reader.read()
            assert all(child.poll() is None for _, child in self.living), self.errors()
            return not stuck()

        longest = max((call.facts.get("wait", 0.0) for call in waits), default=0.0)
        self._within(HANG_S + longest, gets_on, lambda: self._hanging(stuck()))

    def _within(self, seconds: float, true: Callable[[], object], what: Callable[[], str]) -> None:
        """As `within`, and note how slow the machine is."""
        self.story.slowness = max(self.story.slowness, within(seconds, true, what))

    def _hanging(self, calls: list[Call]) -> str:
        """What to say of calls that do not come to an end: where each thread is."""
        hanging = {call.process for call in calls}
        for process, child in self.living:
            if process in hanging:
                child.send_signal(signal.SIGUSR1)
        time.sleep(1)
        return f"an owner was killed, and these hang: {calls}; owners {owners(self.root)}\n{self.errors()}"

    def errors(self) -> str:
        """All that the processes wrote to standard error."""
        files = self.root.parent.glob("*.err")
        return "\n".join(f"{each.stem}: {text}" for each in files if (text := each.read_text()))

    # --- the end

    def end(self) -> None:
        """Kill all processes but the owner."""
        for process, child in self.living:
            child.kill()
            child.wait(HANG_S)
            if process not in self.story.killed:
                self.story.killed[process] = time.monotonic_ns()
                self.kills += 1
        self.living.clear()

    def tell(self) -> Story:
        """All that happened. Takes what is left in the queues."""
        self._nobody_is_connected()
        self._kill_owner()
        for reader in self.readers.values():
            reader.read()
        self.story.calls = [
            call for reader in self.readers.values() for call in reader.calls.values()
        ]
        with tidelog.connect(self.root, fsync=self.policy, timeout=TIMEOUT_S) as db:
            self._drain(db, self.story.left)
        return self.story

    def _nobody_is_connected(self) -> None:
        """The peers are gone, and the owner keeps nothing for them."""
        with tidelog.connect(self.root, fsync=self.policy, timeout=TIMEOUT_S) as db:

            def kept() -> str:
                text: bytes = db.execute_command("CLIENT", "LIST")
                lines, pid = text.decode().splitlines(), owner_of(self.root)
                mine = len(db._link._busy) + len(db._link._free) + 1
                sockets = [each for each in open_files(pid) if each.startswith("socket:")]
                threads = os.listdir(f"/proc/{pid}/task")
                if len(lines) <= mine and len(sockets) <= len(lines) + OWN_SOCKETS:
                    if len(threads) <= OWN_THREADS:
                        return ""
                return f"{len(threads)} threads, {len(sockets)} sockets, and these clients: {lines}"

            self._within(HANG_S, lambda: not kept(), lambda: f"the owner keeps {kept()}")

    def _drain(self, db: Any, left: Left) -> None:
        # Without limits: the store does not know them, and the workers are gone.
        queues = {name: db.queue(name, retry_after=RETRY_AFTER_S) for name in BY_NAME}
        far = time.time() + FAR_S / 2

        def all_done() -> bool:
            for name, queue in queues.items():
                for job in queue.consume("the end", batch=100, block=0):
                    fact = job.id, job.origin or job.id, job.value, job.headers
                    left.taken.setdefault(name, []).append(fact)
                    assert job.ack(), f"{name}: {job.id} was lost"
            # In this order: a job that becomes due meanwhile is counted in the depth.
            return not any(map(is_due_soon, queues.values())) and not any(map(len, queues.values()))

        def is_due_soon(queue: Any) -> bool:
            later = queue.peek(10_000, scheduled=True)
            return any(job.due_at.timestamp() < far for job in later)

        for queue in queues.values():
            queue.resume()
        for plan in db.schedules.list():
            db.schedules.pause(plan.name)
            left.ticks[plan.name] = plan.ticks
        # Leases that `extend` has lengthened, and delays, end within this time.
        self._within(HANG_S + 3 * RETRY_AFTER_S, all_done, lambda: "jobs are left over")
        for name, queue in queues.items():
            left.dead[name] = [(job.original_id, job.value, job.reason) for job in queue.dead]
            left.later[name] = [(job.id, job.value) for job in queue.peek(10_000, scheduled=True)]
        left.effects = [job.value for job in db.queue(EFFECTS).peek(10_000)]
        for delivery in self.story.deliveries():
            closing = delivery.closing
            if closing is not None and closing.what == "result" and closing.outcome is True:
                queue = queues[delivery.queue]
                left.results[delivery.queue, delivery.first] = queue.result(delivery.first, 0)


def strays(root: Path) -> list[str]:
    """Processes that know of the store: by their command line, directory or open files, or because a process of the
    crowd has started them.
    """
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            places = open_files(int(folder.name))
            marked = f"{MARK}={root}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if marked or str(root) in words or any(each.startswith(str(root)) for each in places):
                if is_running(int(folder.name)):
                    found.append(f"{folder.name}: {words}")
    return found
