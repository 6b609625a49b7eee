"""One random history of all faces of a queue: equal results, and equal streams after each step.

The models of the queue drive the embedded queue, a shared one and the commands in `test_faces_stateful.py`. Here the
faces are held to each other, those for asyncio too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from tests.client.faces.faces import FACES, GROUPS, Face
from tests.rounds import some_slow_and_soak

import tidelog
from tidelog.jobs.dedup import MODES

OPTIONS: tuple[dict[str, Any], ...] = (
    {"keep": 2},
    {"keep": timedelta(seconds=20)},
    {"keep": 2, "concurrency": 2},
    {"concurrency": 3, "rate": "9/m"},
    {"concurrency_per_key": 1},
    {"keep": 2, "concurrency_per_key": 2, "concurrency": 3},
    {"lease": 9.0, "retry": "max=6 base=3 jitter=no"},
)
# More deliveries than `max_deliveries`: whether one counts that a server had given out when it was killed is known to
# an embedded store, and not to the next server.
POLICIES = (None, None, None, "max=6 jitter=no", "max=9 base=2 backoff=linear jitter=no")
PRIORITIES = (0, 0, 0, 1, 5, 9)
KEYS = (None, None, "k", "k", "l")
WORKERS = ("anna", "ben", "cleo")
TICKS: tuple[dict[str, Any], ...] = (
    {"every": 5.0},
    {"every": 30.0},
    {"cron": "*/10 * * * * *", "tz": "Europe/Berlin"},
    {"cron": "* * * * *"},
)
# Step -> how often it is drawn. Each is a method of `Face`.
STEPS = {
    **{
        "put": 25,
        "put_many": 3,
        "cancel": 2,
        "forget": 1,
        "pause": 1,
        "resume": 3,
        "paused_at": 1,
        "move": 3,
        "schedule": 2,
        "unschedule": 1,
    },
    **{"take": 20, "end": 27, "redrive": 2, "dead": 1, "dead_get": 1, "dead_purge": 1},
    **{"purge": 1, "result": 3, "job": 4, "failures_of": 1, "pass_time": 8, "figures": 5},
    **{"subscribe": 1, "crash": 1, "leave": 2, "drop": 2},
}
ENDS = ("ack", "ack", "result", "nack", "nack", "fail", "release", "extend", "and", "later", *MODES)


class History:
    """Random steps. They depend on the jobs that one face holds, which all faces hold."""

    def __init__(self, seed: int, face: Face) -> None:
        self.pick, self.face = random.Random(seed), face
        self.number = 0

    def steps(self, count: int) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
        """(name, arguments, named arguments) of each."""
        pick, face = self.pick, self.face
        if "keep" in face.options:
            # A group that comes later gets the finished jobs that are kept. When these are swept is left open.
            for group in GROUPS:
                yield "subscribe", (group,), {}
        for _ in range(count):
            (name,) = pick.choices(list(STEPS), list(STEPS.values()))
            args: tuple[Any, ...] = ()
            given: dict[str, Any] = {}
            if name == "put":
                dedup = pick.choice((None, None, None, "d1", "d2"))
                args, given = (self.fresh(),), {"dedup_id": dedup, **self.how()}
                if dedup is not None:
                    given["dedup"] = pick.choice(MODES)
            elif name == "put_many":
                values = [self.fresh() for _ in range(pick.randrange(1, 8))]
                args, given = (values,), self.how()
            elif name == "forget":
                args = (pick.choice(("d1", "d2", "next")),)
            elif name in ("cancel", "move", "result", "job", "failures_of"):
                if not face.ids:
                    continue
                args = (pick.choice(face.ids[-9:]),)
                if name == "move":
                    given = {pick.choice(("delay", "at")): pick.choice((0.0, 1.0, 20.0))}
            elif name == "schedule":
                given = {"catch_up": pick.choice(("one", "all", "none")), **pick.choice(TICKS)}
                given["priority"] = pick.choice((0, 2))
            elif name == "unschedule":
                args = (pick.choice(("pause", "resume", "remove")),)
            elif name == "take":
                limit = pick.choice((None, None, None, 6.0))
                args = (self.group(), pick.choice(WORKERS), pick.choice((1, 1, 1, 3)), limit)
            elif name == "leave":
                args = (self.group(), pick.choice(WORKERS), pick.choice((2, 3, 5)))
            elif name == "drop":
                if not face.jobs:
                    continue
                args = pick.choice(list(face.jobs))
            elif name == "end":
                if not face.jobs:
                    continue
                args = (*pick.choice(list(face.jobs)), pick.choice(ENDS))
            elif name in ("redrive", "dead_purge"):
                args = (pick.choice(("all", "first", "refused")),)
                if name == "redrive":
                    given = {"dry_run": pick.random() < 0.3}
            elif name == "dead_get":
                args = (pick.randrange(9),)
            elif name == "pass_time":
                args = (pick.choice((0.5, 1.0, 2.0, 4.0)),)
            elif name in ("figures", "subscribe"):
                args = (self.group(),)
            yield name, args, given

    def fresh(self) -> bytes:
        self.number += 1
        return b"v%d" % self.number

    def group(self) -> str:
        return self.pick.choice((GROUPS[0], GROUPS[0], GROUPS[0], GROUPS[1]))

    def how(self) -> dict[str, Any]:
        """The options of a put: when it is due, how long it is worth something, its retries, priority and key."""
        pick = self.pick
        due: dict[str, Any] = pick.choice(
            ({}, {}, {}, {"delay": pick.choice((0.5, 3.0, 10.0))}, {"at": pick.choice((-5.0, 2.5))})
        )
        due["ttl"] = pick.choice((None, None, None, 4.0))
        due["retry"] = pick.choice(POLICIES)
        return {**due, "priority": pick.choice(PRIORITIES), "key": pick.choice(KEYS)}


def outcome(face: Face, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """The result of a step. A job that was ended is in nobody's hands any more; one that was not still is."""
    try:
        found = getattr(face, name)(*args, **given)
    except tidelog.QueueFull:
        return "full"
    if name == "end" and args[2] != "extend":
        del face.jobs[args[:2]]
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", some_slow_and_soak((2, 300), (30, 400), (500, 400)))
def test_all_faces_agree(size: tuple[int, int]) -> None:
    rounds, count = size
    for _ in range(rounds):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        options = random.Random(seed).choice(OPTIONS)
        with ExitStack() as stack:
            faces: list[Any] = [kind(stack, options) for kind in FACES]
            for number, step in enumerate(History(seed, faces[0]).steps(count)):
                first, *others = (outcome(face, *step) for face in faces)
                for face, other in zip(faces[1:], others, strict=True):
                    assert other == first, (seed, number, step, type(face).__name__)
                state, *rest = (face.state() for face in faces)
                for face, other in zip(faces[1:], rest, strict=True):
                    assert other == state, (seed, number, step, type(face).__name__)


@pytest.mark.parametrize("kind", FACES)
def test_a_worker_begins_once(kind: type[Face]) -> None:
    """The worker gets the earlier jobs that it has passed over when the lease ends, like any other worker."""
    with ExitStack() as stack:
        face: Any = kind(stack, {})
        kept, left = face.put(b"kept"), face.put(b"left")
        face.take("workers", "ben", 2, None)
        face.end("workers", kept, "extend")
        for _ in range(19):
            face.pass_time(1)
        face.crash()
        assert [job[0] for job in face.take("workers", "ben", 1, None)] == [left]
        face.end("workers", left, "ack")  # it was lost with its process, so it runs alone
        # The lease was extended for 20 seconds, but it was renewed until the crash.
        face.pass_time(2)
        assert face.take("workers", "ben", 1, None) == []
        face.pass_time(8)
        assert [job[0] for job in face.take("workers", "anna", 1, None)] == [kept]


@pytest.mark.parametrize("kind", FACES)
def test_a_worker_drops_one_job_of_a_batch(kind: type[Face]) -> None:
    """Another worker gets it when its lease is over. The worker keeps the other one, whose lease is renewed."""
    with ExitStack() as stack:
        face: Any = kind(stack, {})
        left, kept = face.put(b"left"), face.put(b"kept")
        face.take("workers", "anna", 2, None)
        face.drop("workers", left)
        for _ in range(7):
            face.pass_time(1)
        assert face.take("workers", "ben", 2, None) == []
        face.pass_time(1)
        assert [job[:2] for job in face.take("workers", "ben", 2, None)] == [(left, 2)]
        for _ in range(9):
            face.pass_time(1)
        assert face.take("workers", "cleo", 1, None) == []
        assert face.end("workers", kept, "ack") and face.end("workers", left, "ack")
