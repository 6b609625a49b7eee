"""Jobs found by their facts, through every face of a queue, and how far one call looks."""

from __future__ import annotations

import random
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest
import redis
from tests.client.faces.faces import GROUPS, ROOT, Embedded
from tests.client.faces.test_dedup import take
from tests.client.faces.test_faces_agree import OPTIONS, History, outcome

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk
from tidelog.jobs.search import SLICE_COST, Wanted
from tidelog.jobs.verbs.find import SLICES_MAX, Find

WRONG = (tidelog.DataError, redis.ResponseError)


FACE_OPTIONS = {"keep": 2}  # three deliveries for a job at most; two jobs that are done are kept


def found(face: Any, group: str = "workers", **given: Any) -> list[str]:
    """The first IDs of all jobs that are found."""
    jobs, until = face.find(group, **given)
    assert until is None
    return [job.id for job in jobs]


def test_each_state_as_job_tells_it(face: Any) -> None:
    """A job that is found looks as it does when it is asked for, whatever ID it has now."""
    done, failed, dead = (face.put(value, key=value.decode()) for value in (b"a", b"b", b"c"))
    take(face)
    face.end("workers", done, "result")
    take(face)
    face.end("workers", failed, "nack")
    take(face)
    face.end("workers", dead, "fail")
    held = face.put(b"h", priority=2)
    take(face)
    waiting, delayed = face.put(b"w"), face.put(b"d", delay=60)
    due = face.put(b"e", delay=1)
    face.pass_time(2)
    states = {
        **{"paused": [failed], "dead": [dead], "running": [held]},
        **{"waiting": [waiting, due], "delayed": [delayed]},
    }
    for _ in range(2):
        for state, ids in states.items():
            jobs, until = face.find("workers", state=state)
            assert (until, jobs) == (None, [face.job(id) for id in ids]), state
            assert {job.state for job in jobs} == {state}
        jobs, _ = face.find("workers")
        places = [tuple(map(int, job.present_id.split("-"))) for job in jobs]
        assert places == sorted(places)
        # not the one that is done
        assert sorted(job.id for job in jobs) == sorted(sum(states.values(), []))
        face.crash()  # what it read is gone
    face.pass_time(9)
    again = take(face)  # the due job moves to another ID, and the other ones come again
    assert again in (failed, held)
    assert face.find("workers", state="running")[0] == [face.job(again)]


def test_a_key_a_header_and_both(face: Any) -> None:
    first, other = face.put(b"1", key="ann"), face.put(b"2", key="ben")
    high, delayed = face.put(b"3", key="ann", priority=5), face.put(b"4", key="ann", delay=9)
    assert set(found(face, key="ann")) == {first, high, delayed}
    assert found(face, key="an") == found(face, key="1") == []
    assert set(found(face, header="h=1")) == {first, other, high, delayed}
    assert found(face, header="h=2") == found(face, header="1=h") == []
    assert found(face, key="ben", header="h=1") == [other]
    assert found(face, key="ann", state="delayed") == [delayed]


def test_a_part_of_an_error(face: Any) -> None:
    paused, dead, fine = face.put(b"p"), face.put(b"d"), face.put(b"f")
    for id, end in ((paused, "nack"), (dead, "fail")):
        take(face)
        face.end("workers", id, end)
    assert found(face, error="gai") == [paused]
    assert found(face, error="no") == [dead]
    assert found(face, error="luck") == [] and fine not in found(face, error="a")
    face.crash()
    assert found(face, error="again", state="paused") == [paused]
    assert found(face, error="again", state="running") == []
    face.redrive("all")
    assert found(face, error="no") == []  # it begins anew


def test_a_text_anywhere(face: Any) -> None:
    """In the value, the key, a header, an error or its traceback, in letters of any case."""
    paused, dead = face.put(b"Paul"), face.put(b"\xff and", key="Ann")
    for id, end in ((paused, "nack"), (dead, "fail")):
        take(face)
        face.end("workers", id, end)
    delayed = face.put(b'"M\\u00fcller \\ud83d"', delay=9)
    assert found(face, text="PAU") == [paused] and found(face, text="ann") == [dead]
    assert found(face, text="gai") == [paused] and found(face, text="No") == [dead]
    assert found(face, text="mÜller") == found(face, text="u00FC") == [delayed]
    assert set(found(face, text="H: 1")) == {paused, dead, delayed}
    assert found(face, text="xff A", state="dead") == [dead]
    assert found(face, text="a", state="running") == found(face, text="nobody") == []
    face.crash()
    assert found(face, text="AGAIN", key="k") == [] and found(face, text="AGAIN") == [paused]


def test_those_put_since(face: Any) -> None:
    delayed = face.put(b"d", delay=3)
    face.pass_time(2)
    since = face.clock.now()
    later = face.put(b"l")
    assert found(face, since=since) == [later]
    face.pass_time(2)
    take(face), take(face)
    assert found(face, since=since) == [later]  # though the delayed one has an ID of now
    assert set(found(face, state="running")) == {delayed, later}


def test_each_group_has_its_own_view(face: Any) -> None:
    face.subscribe("audit")
    id = face.put(b"v")
    take(face)
    assert found(face, state="running") == [id]
    assert found(face, "audit", state="waiting") == [id]
    face.end("workers", id, "fail")
    assert found(face) == [id]
    assert found(face, "audit", state="dead") == [] and found(face, "audit") == [id]


def test_one_by_one(face: Any) -> None:
    """Each job comes once, if two of them have one ID, too: a dead one has that of its death."""
    ids = [face.put(b"v", priority=priority) for priority in (0, 0, 5, 0)]
    take(face)
    face.end("workers", ids[2], "fail")
    ids.append(face.put(b"v", delay=60))
    ids.append(face.put(b"v"))
    every = found(face)
    assert sorted(every) == sorted(ids)
    walked, until = [], None
    for _ in range(len(ids) + 1):
        jobs, until = face.find("workers", limit=1, after=until)
        walked += [job.id for job in jobs]
        if until is None:
            break
        assert len(jobs) == 1
    assert walked == every and until is None


def test_an_empty_queue_and_wrong_arguments(face: Any) -> None:
    assert found(face) == found(face, state="dead") == found(face, key="k", error="e") == []
    for given in ({"state": "done"}, {"after": "1-1"}, {"after": "x"}, {"limit": 0}):
        with pytest.raises(WRONG):
            face.find("workers", **given)


def test_arguments_of_a_method() -> None:
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1)) as db:
        queue: Any = db.queue("q")
        id = queue.put({"to": "ann"}, headers={"a": "b=c"})
        for named in ("a=b=c", ("a", "b=c")):
            (job,) = queue.find(header=named).jobs
            assert (job.id, job.value) == (id, {"to": "ann"})
        wrong: list[dict[str, Any]] = [
            *({"header": "a"}, {"header": ("a", 1)}, {"header": ([], "a")}, {"header": 1}),
            {"header": ("a", "b", "c")},
            *(
                {"key": ""},
                {"error": ""},
                {"text": ""},
                {"text": 1},
                {"since": datetime(2026, 1, 1)},
                {"since": 1.0},
            ),
            *({"limit": True}, {"after": 1}, {"after": "1-1-x"}),
        ]
        for given in wrong:
            with pytest.raises(tidelog.DataError):
                queue.find(**given)
        with pytest.raises(TypeError, match=r"find\(\) got an unexpected keyword argument 'txt'"):
            queue.find(txt="a")


def test_how_far_one_call_looks() -> None:
    """At a bounded number of entries, whose nodes it does not decode if the key is not in them."""
    many = SLICES_MAX * SLICE_COST
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1), clock=testing.Clock()) as db:
        queue = db.queue("q", codec="bytes")
        queue.put_many([b""] * (many + 1_000))
        last = queue.put(b"", key="k" * 5)
        nothing = queue.find(state="running")
        assert (nothing.jobs, nothing.until) == ([], None)  # no job is pending: nothing is read
        lone = queue.find(key="k" * 5)
        assert ([job.id for job in lone.jobs], lone.until) == ([last], None)
        queue.put_many([b"k" * 5] * (many + 1_000))  # the key is in their nodes
        far = queue.find(key="k" * 5, after=f"{last}-0")
        assert far.jobs == [] and far.until is not None
        looked = db.xrange("q", f"({last}", far.until.rpartition("-")[0])
        assert many * 0.9 < len(looked) <= many + SLICES_MAX
        rest = queue.find(key="k" * 5, after=far.until)
        assert (rest.jobs, rest.until) == ([], None)


def test_nodes_that_are_not_decoded_count_by_their_size() -> None:
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1)) as db:
        queue: Any = db.queue("q", codec="bytes")
        queue.put_many([b"v" * 1000] * (2 * SLICE_COST))
        found, until = queue._backend.ask(Find(Wanted(key=b"k")))
        assert found == [] and until is not None  # one slice does not pass 1,000 KiB


def test_a_search_goes_on_behind_a_node_that_is_more_than_a_slice() -> None:
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1)) as db:
        queue: Any = db.queue("q", codec="bytes")
        queue.put_many([b"v" * (1 << 20)] * 5)  # four are in one node
        first = queue.find(limit=4)
        rest = queue.find(after=first.until)
        assert (len(first.jobs), len(rest.jobs), rest.until) == (4, 1, None)


def test_long_values_are_more_work_for_a_text() -> None:
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1)) as db:
        queue: Any = db.queue("q", codec="bytes")
        queue.put_many([b"v" * (1 << 20)] * 5)
        found, until = queue._backend.ask(Find(Wanted(text="k")))
        assert found == [] and until is not None  # one slice does not pass 2 MiB
        assert queue.find(text="k").until is None


def test_a_limit_above_what_one_slice_finds() -> None:
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1)) as db:
        queue = db.queue("q", codec="bytes")
        queue.put_many([b"v"] * SLICE_COST)
        found = queue.find(limit=150)
        assert len({job.id for job in found.jobs}) == len(found.jobs) == 150
        assert len(queue.find(limit=1000, after=found.until).jobs) == SLICE_COST - 150


def test_a_value_is_no_header() -> None:
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1)) as db:
        queue = db.queue("q", codec="bytes")
        queue.put(b"header.n", headers={"h": "1"})
        assert queue.find(header=("n", "header.h")).jobs == []


def test_find_tells_what_job_tells_in_a_random_history() -> None:
    """Each job that is not done is found once, as it looks when it is asked for."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    with ExitStack() as stack:
        face: Any = Embedded(stack, random.Random(seed).choice(OPTIONS))
        history = History(seed, face)
        history.group = lambda: GROUPS[0]  # type: ignore[method-assign]
        compared = 0
        for number, step in enumerate(history.steps(200)):
            if step[1] == (GROUPS[1],):
                continue  # job() also tells how another group ended a job
            outcome(face, *step)
            if number % 5:
                continue
            jobs, _ = face.find(GROUPS[0])
            assert all(job.state != "cancelled" for job in jobs)
            jobs += face.find(GROUPS[0], state="cancelled")[0]
            assert len({job.id for job in jobs}) == len(jobs), number
            assert jobs == [face.job(job.id) for job in jobs], number
            asked = filter(None, map(face.job, face.ids))
            assert {job.id for job in asked if job.state != "done"} <= {job.id for job in jobs}
            compared += len(jobs)
        assert compared


def test_a_job_that_another_client_claimed_before_it_was_delivered() -> None:
    """It is pending beyond the last delivery of the group, and found once."""
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1)) as db:
        queue = db.queue("q", codec="bytes")
        queue.subscribe()
        ids = [queue.put(b"v") for _ in range(2)]
        db.xclaim("q", "workers", "other", 0, [ids[1]], force=True)
        jobs = queue.find().jobs
        assert jobs == [queue.job(id) for id in ids]
