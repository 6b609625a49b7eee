"""A shared store has the methods of an opened one: every name, parameter and type, apart from the differences below.

The test compares the signatures as they are written, so a method or an option that is added to one face only fails it.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Bench

import tidelog
from tidelog.api.missing import _Absent
from tidelog.api.pipeline import AsyncPipeline, Pipeline
from tidelog.api.queue.aio import AsyncConsumer
from tidelog.api.queue.aschedules import AsyncSchedules
from tidelog.api.queue.face import Consumer
from tidelog.api.queue.schedules import Schedules
from tidelog.client import aqueue, consumer, pipeline, schedules
from tidelog.client.apipeline import AsyncSharedPipeline
from tidelog.client.missing import LACKING, PAGE

ROOT = Path(__file__).parents[2]
PAIRS: list[tuple[type, type]] = [
    (tidelog.Store, tidelog.SharedStore),
    (tidelog.AsyncStore, tidelog.AsyncSharedStore),
    (Pipeline, pipeline.SharedPipeline),
    (AsyncPipeline, AsyncSharedPipeline),
    (tidelog.Queue, tidelog.SharedQueue),
    (tidelog.AsyncQueue, tidelog.AsyncSharedQueue),
    (Consumer, consumer.SharedConsumer),
    (AsyncConsumer, aqueue.AsyncSharedConsumer),
    (tidelog.Job, tidelog.SharedJob),
    (tidelog.AsyncJob, tidelog.AsyncSharedJob),
    (Schedules, schedules.SharedSchedules),
    (AsyncSchedules, aqueue.AsyncSharedSchedules),
]
# Attributes of a job that the shared one sets, where the embedded one has slots.
SET = {"value", "entry"}
# A barrier of an opened store returns a receipt, which a shared one does not have. The type of `store` is Any in the
# class that both embedded queues share.
RETURNS = {"barrier", "store"}
# Special methods that a program calls by syntax.
SYNTAX = {
    *("__len__", "__bool__", "__contains__", "__getitem__", "__setitem__", "__delitem__"),
    *("__iter__", "__next__", "__enter__", "__exit__", "__reduce__"),
    *("__aiter__", "__anext__", "__aenter__", "__aexit__", "__await__"),
}


def public(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__[:-1]):
        found.update(vars(base))
    return {
        name: value
        for name, value in found.items()
        if (name in SYNTAX or not name.startswith("_")) and not isinstance(value, _Absent)
    }


def signature(name: str, value: Any) -> str:
    """The signature for callers and type checkers. The names of types that differ by face are made alike."""
    if isinstance(value, property):
        assert value.fget is not None
        returned = None if name in RETURNS else inspect.signature(value.fget).return_annotation
        text = f"property {returned}{' set' if value.fset else ''}"
    elif callable(value):
        signed = inspect.signature(value)
        if name in RETURNS:
            signed = signed.replace(return_annotation=None)
        text = f"{'async ' * inspect.iscoroutinefunction(value)}{signed}"
    else:
        text = repr(value)
    text = re.sub(r"\b(Async)?Shared", r"\1", text)
    return re.sub(r"\[V\]|'V'|\bV\b", lambda m: m[0].replace("V", "T"), text)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1].__name__)
def test_a_shared_face_has_all_of_the_embedded_one(pair: tuple[type, type]) -> None:
    embedded, shared = (public(kind) for kind in pair)
    lacking = embedded.keys() - shared.keys()
    allowed = set(LACKING) if pair[0] in (tidelog.Store, tidelog.AsyncStore) else set()
    if "Job" in pair[0].__name__:
        allowed = SET
    assert lacking <= allowed
    different = {
        name: (signature(name, embedded[name]), signature(name, shared[name]))
        for name in embedded.keys() & shared.keys() - {"__reduce__", "__init__"}
        if signature(name, embedded[name]) != signature(name, shared[name])
    }
    assert not different


def test_the_list_of_what_is_lacking_is_not_too_long(bench: Bench) -> None:
    store = bench.connect()
    lacking = {
        name
        for face in (store, tidelog.AsyncSharedStore(store))
        for name in LACKING
        if name not in public(type(face))
    }
    assert lacking == set(LACKING)


def test_the_error_names_a_page_that_lists_it(bench: Bench) -> None:
    page = (ROOT / PAGE).read_text()
    rows = re.findall(r"^\| `(\w+)`", page, re.MULTILINE)
    assert set(LACKING) <= set(rows)
    for name in LACKING:
        with pytest.raises(AttributeError, match=re.escape(PAGE)):
            getattr(tidelog.AsyncSharedStore(bench.connect()), name)


def test_jobs_have_the_attributes_of_embedded_ones(bench: Bench) -> None:
    with tidelog.connect(bench.root) as store:
        store.queue("q").put(7)
        job = store.queue("q").get("w", block=0)
        assert job is not None
        other = tidelog.AsyncSharedJob(job._lease)
        for face in (job, other):
            assert (face.value, face.deliveries, face.worker) == (7, 1, "w")
            assert face.id == job.id
