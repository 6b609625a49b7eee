"""Retry policies, and what a handler may raise, through every face of a queue."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.client.faces.faces import FACES, RETRY_AFTER, Commands, Embedded, same_in_a_replay
from tests.client.faces.test_dedup import take
from tests.until import until

import tidelog

METHODS = [kind for kind in FACES if kind is not Commands]
FIXED = tidelog.RetryPolicy(max=4, base=2, cap=5, jitter=False)


@pytest.fixture(params=METHODS, ids=lambda kind: kind.__name__)
def methods(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A queue without jobs, through objects."""
    with ExitStack() as stack:
        made = request.param(stack, {})
        yield made
        same_in_a_replay(made)


def leave(face: Any, error: BaseException) -> str:
    """Take the next job, and leave its block by this exception. Returns its ID."""
    id = take(face)
    with face.jobs.pop(("workers", id)):
        raise error
    return id


def pauses(face: Any, how: str = "again") -> list[float]:
    """The seconds after which a job comes again, delivery by delivery, until it is dead. One queue has one job."""
    found: list[float] = []
    while True:
        face.end("workers", take(face), how)
        due = {hold[1][b"until"] for hold in face.db.xrange("q:holds")}
        if not due:
            return found
        (until,) = due
        left = int(until) / 1000 - face.clock.now().timestamp()
        found.append(left)
        face.pass_time(left - 0.125)
        assert face.take("workers", "anna", 1, None) == []
        face.pass_time(0.125)


@pytest.mark.parametrize("retry", [FIXED, str(FIXED)], ids=["policy", "text"])
@pytest.mark.parametrize("how", [{}, {"delay": 1}, {"priority": 3}], ids=str)
def test_a_job_is_tried_again_by_its_own_policy(face: Any, how: dict[str, Any], retry: Any) -> None:
    if isinstance(face, Commands):
        retry = str(retry)
    face.put(b"a", retry=retry, **how)
    face.pass_time(2)
    face.crash()
    if "priority" in how:
        holds = [face.end("workers", take(face), "again")]
        for wait in (2, 4, 5):
            face.pass_time(wait)
            holds.append(face.end("workers", take(face), "again"))
        assert all(holds)
    else:
        assert pauses(face) == [2, 4, 5]
    ((*_, reason, deliveries, _, _),) = face.dead()
    assert (reason, deliveries) == ("given up after 4 deliveries; the last one failed: again", 4)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max=4 backoff=linear base=2 jitter=no", [2, 4, 6]),
        ("max=4 backoff=constant base=2 jitter=no", [2, 2, 2]),
        ("backoff=constant base=2 jitter=no", [2, 2]),
        ("jitter=no max=2", [RETRY_AFTER]),
        ("max=3 base=0.25 jitter=no cap=0.375", [0.25, 0.375]),
        ("max=1", []),
    ],
)
def test_pauses_grow_as_the_policy_says(text: str, found: list[float]) -> None:
    with ExitStack() as stack:
        face: Any = FACES[0](stack, {})
        face.put(b"a", retry=text)
        face.pass_time(1)
        assert pytest.approx(pauses(face)) == found


def test_jitter_is_a_quarter() -> None:
    policy = tidelog.RetryPolicy(base=8, cap=20)
    assert [policy.pause(1, chance, 1.0) for chance in (0.0, 0.5, 1.0)] == [6, 8, 10]
    assert policy.pause(3, 0.5, 1.0) == 20 and policy.pause(10**9, 0.5, 1.0) == 20
    assert tidelog.RetryPolicy().pause(30, 0.5, 1.0) == 3600
    assert tidelog.RetryPolicy().pause(30, 0.5, 7200.0) == 7200


def test_all_jobs_of_a_put_many_have_the_policy(face: Any) -> None:
    face.put_many([b"a", b"b"], retry="max=1")
    for _ in range(2):
        face.end("workers", take(face), "again")
    assert [dead[6] for dead in face.dead()] == [1, 1]


def test_a_redriven_job_keeps_its_policy(face: Any) -> None:
    face.put(b"a", retry="max=2 base=1 jitter=no")
    assert pauses(face) == [1]
    face.redrive("all")
    face.crash()
    assert pauses(face) == [1] and face.dead()[0][6] == 2


def test_the_policy_counts_deliveries_that_were_lost(face: Any) -> None:
    once, thrice = face.put(b"a", retry="max=1"), face.put(b"b", retry="max=4")
    assert [take(face), take(face)] == [once, thrice]
    for delivery in (2, 3, 4):
        face.crash()
        face.pass_time(RETRY_AFTER + 1)
        ((id, count, *_),) = face.take("workers", "ben", 2, None)  # a lost job runs alone
        assert (id, count) == (thrice, delivery)
    face.crash()
    face.pass_time(RETRY_AFTER + 1)
    assert face.take("workers", "ben", 2, None) == []
    assert sorted((dead[1], dead[6]) for dead in face.dead()) == [(once, 1), (thrice, 4)]


def test_a_policy_that_cannot_be_read_is_none(face: Any) -> None:
    face.put(b"first")  # makes the stream
    for text in ("max=0", "quantum=3", "max=2 max=3", "base=nan", b"\xff", "never=Nothing"):
        face.db.xadd("q", {"value": b"a", "retry": text})
    for _ in range(7):
        face.end("workers", take(face), "nack")
    assert face.figures("workers")["stats"]["paused"] == 7 and face.dead() == []


# --- the policy of a queue


def queue_with(face: Any, **options: Any) -> None:
    """Open the queues again with more options."""
    face.options |= options
    face.crash()


def test_a_queue_has_a_policy(face: Any) -> None:
    queue_with(face, retry="max=3 backoff=linear base=3 jitter=no")
    face.put(b"a")
    assert pauses(face) == [3, 6]
    face.dead_purge("all")
    face.put(b"b", retry="max=2 base=7 jitter=no")  # replaces it as a whole
    assert pauses(face) == [7]


def test_a_lease_is_apart_from_the_pauses(face: Any) -> None:
    queue_with(face, lease=4.0, retry="jitter=no")
    lost, failed = face.put(b"lost"), face.put(b"failed")
    assert [take(face), take(face)] == [lost, failed]
    face.end("workers", failed, "again")
    face.crash()
    face.pass_time(4.5)
    assert [job[0] for job in face.take("workers", "ben", 2, None)] == [lost]
    face.end("workers", lost, "ack")
    face.pass_time(RETRY_AFTER - 5)
    assert face.take("workers", "ben", 1, None) == []
    face.pass_time(1)
    assert [job[0] for job in face.take("workers", "ben", 1, None)] == [failed]
    face.end("workers", failed, "ack")


def test_a_long_lease_outlasts_the_pause(face: Any) -> None:
    queue_with(face, lease=60.0)
    id = face.put(b"a")
    assert take(face) == id
    face.crash()
    face.pass_time(5 * RETRY_AFTER)
    assert face.take("workers", "ben", 1, None) == []
    face.pass_time(25)
    assert [job[0] for job in face.take("workers", "ben", 1, None)] == [id]


def test_a_short_lease_is_renewed(face: Any) -> None:
    """A worker that lives keeps its job for longer than the lease, though `retry_after` is longer."""
    queue_with(face, lease=4.0)
    id = face.put(b"a")
    assert take(face) == id
    for _ in range(10):
        face.pass_time(0.75)
        assert face.take("workers", "ben", 1, None) == []
    assert face.end("workers", id, "ack")


@pytest.mark.parametrize("kind", [Embedded, Commands], ids=lambda kind: kind.__name__)
def test_a_lease_is_renewed_in_time(kind: Any) -> None:
    """It is shorter than a third of `retry_after`, and holds for the next process, too."""
    with ExitStack() as stack:
        face: Any = kind(stack, {"lease": 2.0})

        def idle_ms() -> int:
            (row,) = face.db.xpending_range("q", "workers", "-", "+", 1)
            return int(row["time_since_delivered"])

        id = face.put(b"a")
        assert take(face) == id
        for _ in range(7):
            face.pass_time(0.75)
            until(lambda: idle_ms() < 750, "nobody renewed the lease")
        face.crash()
        assert face.take("workers", "ben", 1, None) == []
        face.pass_time(2.5)
        assert [job[0] for job in face.take("workers", "ben", 1, None)] == [id]


# --- what leaves a block


class Busy(ConnectionError):
    """An error of the program's own."""


@pytest.mark.parametrize("of_queue", [False, True], ids=["job", "queue"])
def test_classes_decide_whether_a_job_is_tried_again(methods: Any, of_queue: bool) -> None:
    face = methods
    policy = tidelog.RetryPolicy(on=(OSError, KeyError), never=(FileNotFoundError,), jitter=False)
    given: dict[str, Any] = {} if of_queue else {"retry": policy}
    if of_queue:
        queue_with(face, retry=policy)
    raised: list[tuple[BaseException, bool]] = [
        *((Busy("a"), True), (KeyError("b"), True), (PermissionError("c"), True)),
        *((FileNotFoundError("d"), False), (ValueError("e"), False), (IndexError("f"), False)),
    ]
    for error, again in raised:
        id = face.put(b"a", **given)
        leave(face, error)
        assert face.job(id).state == ("paused" if again else "dead"), error
    assert [dead[5] for dead in face.dead()] == [
        "FileNotFoundError: d",
        "ValueError: e",
        "IndexError: f",
    ]
    (told,) = face.queue.dead.list()[0].errors
    assert told.error == "FileNotFoundError: d"


def test_an_explicit_nack_does_not_ask_the_classes(methods: Any) -> None:
    id = methods.put(b"a", retry=tidelog.RetryPolicy(never=(ValueError,)))
    take(methods)
    assert methods.jobs["workers", id].nack(ValueError("a"))
    assert methods.job(id).state == "paused"


def test_a_job_shows_its_policy(methods: Any) -> None:
    policy = tidelog.RetryPolicy(max=3, base=1.5, on=(Busy,), never=(ValueError, KeyError))
    id, other = methods.put(b"a", retry=policy, delay=1), methods.put(b"b")
    methods.pass_time(2)
    found = {job: methods.jobs["workers", job].retry for job in (take(methods), take(methods))}
    assert found.pop(other) is None and list(found.values()) == [policy]
    assert policy.on == (f"{__name__}.Busy",)
    assert methods.job(id).retry == policy and methods.job(other).retry is None
    assert methods.job(id).as_dict()["retry"] == str(policy)


def test_a_handler_asks_for_a_retry(methods: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog")
    id = methods.put(b"a", retry="max=3 base=2 jitter=no")
    leave(methods, tidelog.RetryJob("not yet", delay=30))
    assert methods.job(id).due_at == methods.at(30)
    methods.pass_time(30)
    leave(methods, tidelog.RetryJob("not yet"))
    assert methods.job(id).due_at == methods.at(4)  # the pause of the policy
    methods.pass_time(4)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    leave(methods, tidelog.RetryJob(delay=30))
    (dead,) = methods.queue.dead.list()
    assert dead.reason == "given up after 3 deliveries; the last one failed: RetryJob"
    assert [(each.error, each.traceback) for each in dead.errors] == [
        *(("not yet", ""), ("not yet", ""), ("RetryJob", ""))
    ]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_handler_gives_up(methods: Any, caplog: pytest.LogCaptureFixture) -> None:
    methods.put(b"a", retry="max=9 on=ConnectionError")
    leave(methods, tidelog.GiveUp("no such customer"))
    (dead,) = methods.queue.dead.list()
    assert (dead.reason, dead.deliveries) == ("no such customer", 1)
    (told,) = [record for record in caplog.records if record.levelno > logging.INFO]
    assert "is dead: no such customer" in told.getMessage() and not told.exc_info


@pytest.mark.parametrize("reason", [(), (7,)], ids=["cause", "reason"])
@pytest.mark.parametrize("kind", [tidelog.RetryJob, tidelog.GiveUp])
def test_the_evidence_is_that_of_the_cause(methods: Any, kind: Any, reason: Any) -> None:
    methods.put(b"a", retry="max=1")
    take(methods)
    with methods.jobs["workers", methods.ids[0]]:
        try:
            raise Busy("line 7")
        except Busy as error:
            raise kind(*reason) from error
    (dead,) = methods.queue.dead.list()
    (failure,) = dead.errors
    assert failure.error == ("7" if reason else "Busy: line 7")
    assert 'raise Busy("line 7")' in failure.traceback and dead.reason.endswith(failure.error)


def test_what_a_handler_asks_for_is_reraised_to_those_who_ask(methods: Any) -> None:
    id = methods.put(b"a")
    job = next(methods.queue.consume("anna", block=0, reraise=True))
    with pytest.raises(tidelog.RetryJob), job:
        raise tidelog.RetryJob("not yet", delay=3)
    assert methods.job(id).state == "paused"


# --- arguments


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max": 0}, "max must be an integer of at least 1, not 0"),
    ({"max": True}, "max must be"),
    ({"backoff": "cubic"}, "backoff must be one of exponential, linear, constant, not 'cubic'"),
    ({"base": 0}, "base must be more than 0"),
    ({"cap": -1}, "cap must be more than 0"),
    ({"base": 3, "cap": 2}, "cap must be at least base"),
    ({"jitter": 1}, "jitter must be True or False"),
    ({"on": ConnectionError}, "on must be a tuple of exception classes"),
    ({"never": "ValueError"}, "never must be a tuple of exception classes"),
    ({"never": (int,)}, "never must name exception classes, not <class 'int'>"),
    ({"never": ("ValueEror",)}, "never must name exception classes, not 'ValueEror'"),
    ({"on": ("a b.C",)}, "on must name exception classes"),
    ({"on": ("a..C",)}, "on must name exception classes"),
    ({"on": tuple(f"a.C{n}" for n in range(2_000))}, "must have at most 10,000 characters"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[message for _, message in BAD])
def test_a_policy_is_checked_when_it_is_made(given: dict[str, Any], message: str) -> None:
    with pytest.raises(tidelog.DataError) as found:
        tidelog.RetryPolicy(**given)
    assert message in str(found.value)


@pytest.mark.parametrize(
    "text", ["max", "max=", "max=a", "jitter=maybe", "x=1", "max=2 max=2", "max=0"]
)
def test_the_text_of_a_policy_is_checked(face: Any, text: str) -> None:
    refused = (tidelog.DataError, Exception) if isinstance(face, Commands) else tidelog.DataError
    for put, what in ((face.put, b"a"), (face.put_many, [b"a"])):
        with pytest.raises(refused, match="retry|max"):
            put(what, retry=text)
    assert face.figures("workers")["stats"]["waiting"] == 0


@pytest.mark.parametrize("bad", [3, ["max=2"], {"max": 2}, "max=2 " * 2])
def test_the_argument_is_checked(bad: Any) -> None:
    with ExitStack() as stack:
        face: Any = FACES[0](stack, {})
        with pytest.raises(tidelog.DataError, match="retry"):
            face.put(b"a", retry=bad)
        with pytest.raises(tidelog.DataError, match="retry"):
            face.store.queue("q", retry=bad)
    with pytest.raises(tidelog.DataError, match="delay must be"):
        tidelog.RetryJob(delay=-1)


def test_the_same_policies_are_equal() -> None:
    one = tidelog.RetryPolicy(never=(ValueError, Busy), base=2)
    two = tidelog.RetryPolicy(never=[f"{__name__}.Busy", "ValueError"], base=2.0)  # type: ignore[arg-type]
    assert one == two and hash(one) == hash(two) and one != tidelog.RetryPolicy(base=2)
    assert pickle.loads(pickle.dumps(one)) == one  # for the children of a run
