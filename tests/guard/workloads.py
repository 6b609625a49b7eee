"""The list of workloads. A name stands for the same run for ever: to change one, give it another name."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from tests.guard import (
    blocking,
    commands,
    options,
    puts,
    queues,
    record,
    schedules,
    served,
    words,
    workers,
)
from tests.guard.record import Items
from tests.guard.tape import SCRIPTS, play
from tests.guard.world import World, ruled

POLICIES: Final = ("always", "everysec", "no")
TEST, SLOW, SOAK = "test", "slow", "soak"
# The faces that the scripts run through, each with its policy and its part.
FACES: Final = (("threads", "always", TEST), ("tasks", "no", SLOW), ("shared", "everysec", SLOW))
# Scripts in which a client of a shared store gives jobs back, by numbered commands since.
RELEASES: Final = frozenset(
    (
        *("consume-batch", "consume-reraise", "job-lost", "job-release-2", "progress", "put-retry"),
        "queue-concurrency-2",
    )
)
assert options and puts and schedules and workers  # they fill SCRIPTS
# The histories of a queue are all second ones, and these third ones: they purge jobs with dedup IDs.
THIRD: Final = frozenset(
    (
        *("queue-everysec", "queue-tasks"),
        *(f"long-queue-{fsync}-{round}" for fsync in POLICIES for round in range(3)),
        *(f"long-queue-tasks-{round}" for round in range(3)),
    )
) - {"long-queue-always-2", "long-queue-tasks-0"}
# The histories of commands are all first ones, and these second ones; retired.json has the reasons.
SECOND: Final = frozenset(
    (
        *("budget", "tasks", "long-commands-always-0", "long-commands-everysec-1"),
        *("long-commands-always-1", "long-commands-always-2", "long-commands-everysec-0"),
        *("long-commands-everysec-2", "long-commands-no-0", "long-commands-no-1"),
        *("long-commands-no-2", "long-served-always-0", "long-served-always-2"),
        *("long-served-everysec-0", "long-served-no-2", "long-tasks-0", "long-tasks-2"),
    )
)


class Workload(NamedTuple):
    """The commands to run, and in how many damaged copies of the files recovery is then asked for its verdict.

    part    when it is compared: with the tests of `make test`, with the slow ones, or with those of `make test-soak`
    """

    run: Callable[[World], object]
    damages: int
    part: str = SLOW


def _latest(name: str) -> str:
    """The name of the workload that is compared now."""
    return f"{name}-3" if name in THIRD else f"{name}-2"


def _of_commands(name: str) -> str:
    """The same for histories of commands."""
    return f"{name}-2" if name in SECOND else name


def named(face: str, script: str) -> str:
    """The workload of a script through a face."""
    return f"{face}-{script}" + "-once" * (face == "shared" and script in RELEASES)


def _list() -> dict[str, Workload]:
    found: dict[str, Workload] = {}
    for fsync in POLICIES:
        name = "commands-always-2" if fsync == "always" else f"commands-{fsync}"
        found[name] = Workload(partial(commands.commands, fsync=fsync, count=1200), 42)
        found[_latest(f"queue-{fsync}")] = Workload(
            partial(queues.for_threads, fsync=fsync, steps=600), 14
        )
        found[f"blocked-{fsync}"] = Workload(partial(blocking.reads, fsync=fsync, steps=120), 14)
        found[f"served-{fsync}"] = Workload(partial(served.turns, fsync=fsync, count=700), 14)
        found[f"served-blocked-{fsync}"] = Workload(
            partial(served.blocked, fsync=fsync, steps=120), 14
        )
        found[f"bulk-{fsync}"] = Workload(partial(commands.bulk, fsync=fsync), 14)
    found["checkpoints"] = Workload(
        partial(commands.commands, fsync="no", count=1200, checkpoint_every=90, lives=3), 28
    )
    found[_of_commands("budget")] = Workload(
        partial(commands.large, fsync="no", budget=1 << 20, retain=64 << 20), 14
    )
    found["released"] = Workload(
        partial(commands.large, fsync="everysec", budget=1 << 20, retain=0, turns=30), 14
    )
    found[_of_commands("tasks")] = Workload(
        partial(commands.in_tasks, fsync="everysec", count=700), 14
    )
    found[_latest("queue-tasks")] = Workload(partial(queues.for_tasks, fsync="no", steps=600), 14)
    for round in range(3):
        for fsync in POLICIES:
            found[_of_commands(f"long-commands-{fsync}-{round}")] = Workload(
                partial(
                    commands.commands,
                    fsync=fsync,
                    count=3000,
                    checkpoint_every=(0, 150, 700)[round],
                    lives=5,
                    segment_bytes=1 << 16,
                    memory_budget=(None, 1 << 20, None)[round],
                    retain_bytes=(64 << 20, 64 << 20, 0)[round],
                ),
                70,
                part=SOAK,
            )
            found[_latest(f"long-queue-{fsync}-{round}")] = Workload(
                partial(queues.for_threads, fsync=fsync, steps=2400), 28, part=SOAK
            )
            found[f"long-blocked-{fsync}-{round}"] = Workload(
                partial(blocking.reads, fsync=fsync, steps=500), 28, part=SOAK
            )
            found[_of_commands(f"long-served-{fsync}-{round}")] = Workload(
                partial(served.turns, fsync=fsync, count=2500), 28, part=SOAK
            )
        found[_of_commands(f"long-tasks-{round}")] = Workload(
            partial(commands.in_tasks, fsync=POLICIES[round], count=2000), 28, part=SOAK
        )
        found[_latest(f"long-queue-tasks-{round}")] = Workload(
            partial(queues.for_tasks, fsync=POLICIES[round], steps=2400), 28, part=SOAK
        )
    for name, run in SCRIPTS.items():
        for face, fsync, part in FACES:
            found[named(face, name)] = Workload(
                partial(play, run=run, face=face, fsync=fsync), 0, part
            )
    for name, text in words.SCRIPTS.items():
        found[f"words-{name}"] = Workload(partial(words.talk, text=text, fsync="always"), 0, TEST)
    return found


WORKLOADS: Final = _list()


def run(name: str, like: str = "") -> dict[str, Items]:
    """Run a workload in a directory that goes afterwards; everything that is recorded of it.

    like    the name whose seed it takes; empty = its own
    """
    workload, name = WORKLOADS[name], like or name
    seed = crc32(name.encode())
    with tempfile.TemporaryDirectory(prefix="guard-") as folder, ruled(seed):
        world = World(name, seed, Path(folder))
        workload.run(world)
        return record.aspects(world, workload.damages)
