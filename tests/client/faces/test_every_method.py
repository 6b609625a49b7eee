"""Every public method of the faces of a queue, with the place where the faces are compared in it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from tests.client.faces.faces import Methods
from tests.client.faces.test_faces_agree import ENDS, STEPS
from tests.guard import workloads
from tests.guard.tape import SCRIPTS

from tidelog.api.queue.adead import AsyncDead
from tidelog.api.queue.aio import AsyncQueue
from tidelog.api.queue.ajob import AsyncJob
from tidelog.api.queue.aschedules import AsyncSchedules
from tidelog.api.queue.dead import Dead
from tidelog.api.queue.face import Queue
from tidelog.api.queue.job import Job
from tidelog.api.queue.schedules import Schedules
from tidelog.client.aqueue import (
    AsyncSharedJob,
    AsyncSharedQueue,
    AsyncSharedSchedules,
)
from tidelog.client.job import SharedJob
from tidelog.client.queue import SharedQueue
from tidelog.client.schedules import SharedSchedules

TESTS = Path(__file__).parents[1]
# Of several faces: embedded, embedded for asyncio, shared, shared for asyncio.
FACES: dict[str, tuple[type, ...]] = {
    "queue": (Queue, AsyncQueue, SharedQueue, AsyncSharedQueue),
    "job": (Job, AsyncJob, SharedJob, AsyncSharedJob),
    "dead": (Dead, AsyncDead),
    "schedules": (Schedules, AsyncSchedules, SharedSchedules, AsyncSharedSchedules),
}
# `step X`: a step of the random history, which calls the method on each face. `end X`: a way to end a job in it.
# Anything else is a file of tests/client and a text in it.
# by which a run has another process work on a job: tests/client/test_isolation.py
OF_A_RUN = {"backend", "entry", "settle", "queue_options"}
TAKEN = ("id", "value", "headers", "deliveries", "priority", "key")
COMPARED = {
    "queue": {
        **{
            name: f"step {name}"
            for name in ("put", "put_many", "cancel", "move", "purge", "forget")
        },
        **{name: f"step {name}" for name in ("pause", "resume", "paused_at", "job")},
        **{name: f"step {name}" for name in ("result", "subscribe")},
        **{name: "step figures" for name in ("stats", "peek", "failures")},
        **{"consume": "step take", "new": "end later", "dead": "step dead"},
        "find": "faces/test_find.py face.find(",
        "workers": "faces/test_workers.py face.workers(",
        "remove": "faces/test_remove.py face.remove(",
        "get": "faces/test_blocking.py queue.get(",
        "deaths": "faces/test_blocking.py queue.deaths(",
        **{name: f"faces/test_blocking.py queue.{name}" for name in ("name", "group")},
        "store": "faces/test_blocking.py queue.store",
        **{"run": "test_shared_run.py mails.run(", "arun": "test_shared_run.py .arun("},
        **{"close": "test_shared_run.py close(drain", "aclose": "faces/faces.py .aclose("},
    },
    "job": {
        **{name: f"end {name}" for name in ("ack", "nack", "fail", "release", "extend")},
        "done_and": "end and",
        **{name: "step take" for name in TAKEN},
        **{name: f"faces/test_blocking.py .{name}" for name in ("worker", "origin", "state")},
        "enqueued_at": "faces/test_blocking.py .enqueued_at",
        "dedup_id": "faces/test_dedup.py .dedup_id",
        "retry": "faces/test_retries.py .retry",
        "progress": "faces/test_progress.py face.progress(",
        "cancelled": "../jobs/test_cancel_running.py job.cancelled",
        "on_cancel": "../jobs/test_cancel_running.py job.on_cancel(",
        "time_limit": "faces/test_time_limits.py .time_limit",
        "store": "test_isolation.py .store",
        "extended_until": "faces/test_time_limits.py .extended_until",
    },
    "dead": {
        **{"list": "step dead", "get": "step dead_get", "count": "step figures"},
        **{"redrive": "step redrive", "purge": "step dead_purge"},
    },
    "schedules": {
        "list": "step figures",
        **{name: "step unschedule" for name in ("pause", "resume", "remove")},
    },
}


def guarded() -> set[str]:
    """The names that scripts of the guard use. Each script runs through the faces of open and of shared stores."""
    assert workloads  # it fills SCRIPTS
    sources = map(inspect.getsource, SCRIPTS.values())
    nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_every_public_method_is_compared() -> None:
    for what, kinds in FACES.items():
        for kind in kinds:
            public = {name for name in dir(kind) if not name.startswith("_")} - OF_A_RUN
            assert public <= COMPARED[what].keys() | guarded(), f"{kind.__name__} of {what}"
        known = {name for kind in kinds for name in dir(kind)}
        attributes = {"id", "value", "deliveries", "worker"}  # set by __init__
        assert COMPARED[what].keys() - attributes <= known


def test_the_faces_have_the_same_methods() -> None:
    for what, kinds in FACES.items():
        found = []
        for kind in kinds:
            public = {name for name in dir(kind) if not name.startswith("_")}
            # Closing, and running until a signal comes, have names of their own for asyncio.
            public -= {"close", "aclose", "run", "arun", "store", *OF_A_RUN}
            found.append(public - {"id", "value", "deliveries", "worker"})
        assert all(each == found[0] for each in found), what


def test_the_places_are_there() -> None:
    for named in COMPARED.values():
        for method, place in named.items():
            kind, _, rest = place.partition(" ")
            if kind == "step":
                assert rest in STEPS and callable(getattr(Methods, rest)), method
            elif kind == "end":
                assert rest in ENDS, method
            else:
                assert rest in (TESTS / kind).read_text(), f"{method}: {place}"
