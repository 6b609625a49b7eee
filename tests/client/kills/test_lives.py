"""Each check of the lives of jobs fails for one in which its promise is broken, and for that reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.client.kills import lives
from tests.client.kills.acts import GAVE_UP, MOST, TASKS
from tests.client.kills.evidence import NS, Call, Story
from tests.client.kills.lives import Life, Lives
from tests.client.kills.whys import why_agrees

from tidelog.jobs.codecs import NAMED
from tidelog.jobs.rows import EXPIRED, Failure
from tidelog.jobs.status import CANCELLED, DEAD, DONE, RUNNING, JobStatus
from tidelog.tools.life import Event

ID = "1000-0"
HUNG = "TimeLimitExceeded: the handler worked for more than 0.4 s"


class Told:
    """The life of one job that is told call by call, one second each."""

    def __init__(self) -> None:
        self.story = Story([], killed={"w": 1000 * NS})
        self.life = Life(TASKS, ID)
        self.lives = Lives(self.story, {(TASKS, ID): self.life})
        self.now = 0
        self.put()

    def call(self, what: str, outcome: Any, cut: bool = False, **facts: Any) -> Call:
        self.now += NS
        end = None if cut else self.now + NS // 100
        return Call("w", self.now // NS, "t", what, facts, self.now, end, outcome)

    def put(self, ttl: float | None = None) -> None:
        self.life.put = self.call("put", ID, values=["v"], ttl=ttl)

    def handle(self, act: str = "done", outcome: Any = ("done",), **more: Any) -> None:
        facts = {"act": act, "count": 1, "worker": "w", "name": "v", **more}
        cut = outcome is None
        ended = None if cut else list(outcome)
        self.life.handled.append(self.call("handle", ended, cut, **facts))

    def settle(self, what: str = "ack", outcome: Any = True, **more: Any) -> None:
        facts = {"act": what, "count": 1, "worker": "w", **more}
        self.life.settled.append(self.call(what, outcome, **facts))

    def note(self, what: str, **more: Any) -> None:
        self.life.noted.append(self.call(what, True, **{"count": 1, "worker": "w", **more}))

    def cancel(self, outcome: Any = True) -> None:
        self.life.cancels.append(self.call("cancel", outcome))

    def ends(self, state: str, **more: Any) -> None:
        if state == DONE:
            more = {"result_raw": b'"result of v"', **more}
        self.life.status = JobStatus(ID, state, codec=NAMED["json"], **more)

    def dies(self, reason: str, deliveries: int = 1, *errors: str) -> None:
        at = datetime.now(UTC)
        failures = [Failure(ID, at, "w", 1, error, "") for error in errors]
        self.ends(DEAD, reason=reason, deliveries=deliveries, failures=failures)
        self.note("died")


def done(told: Told) -> None:
    told.handle()
    told.note("acked")
    told.ends(DONE)


def joined(told: Told) -> None:
    """Ended by `done_and`, so that nothing of the job is left."""
    told.handle("and")
    told.settle("and")
    told.note("acked")
    told.story.left.effects = [[TASKS, ID]]


def cancelled(told: Told) -> None:
    told.handle("long", None)
    told.cancel()
    told.ends(CANCELLED, reason=CANCELLED, deliveries=1)


def dead(told: Told) -> None:
    told.handle("give up", ("raised", "GiveUp"))
    told.dies(GAVE_UP, 1, GAVE_UP)


def hung(told: Told) -> None:
    for count in range(1, MOST + 1):
        told.handle("sleep", None, count=count)
    told.dies(f"given up after {MOST} deliveries; the last one failed: {HUNG}", MOST, HUNG)


def expired(told: Told) -> None:
    told.put(ttl=0.02)
    told.dies(EXPIRED, 0)


def cancelled_on_its_way(told: Told) -> None:
    """The worker had the job, and its handler begins as the cancel returns."""
    told.cancel()
    told.now -= NS // 2
    told.handle("long", None)
    told.ends(CANCELLED, reason=CANCELLED, deliveries=1)


def begun_before_the_server_heard(told: Told) -> None:
    """The server is killed before it hears that the handler has begun."""
    expired(told)
    told.handle("sleep", ("raised", "CancelledError"))
    told.story.owners_killed.append(told.now + NS // 2)


SOUND = (
    *(done, joined, cancelled, cancelled_on_its_way, dead, hung, expired),
    begun_before_the_server_heard,
)


@pytest.mark.parametrize("tell", SOUND)
def test_a_sound_life(tell: Callable[[Told], None]) -> None:
    told = Told()
    tell(told)
    lives.check_lives(told.lives)


def runs_still(told: Told) -> None:
    told.ends(RUNNING)


def acknowledged_twice(told: Told) -> None:
    done(told)
    told.note("acked", count=2)


def acknowledged_and_dead(told: Told) -> None:
    dead(told)
    told.note("acked")


def cancelled_and_done(told: Told) -> None:
    done(told)
    told.cancel()


def done_by_nobody(told: Told) -> None:
    told.handle("raise", ("raised", "ValueError"))
    told.ends(DONE)


def without_result(told: Told) -> None:
    done(told)
    told.ends(DONE, result_raw=None)


def with_another_result(told: Told) -> None:
    done(told)
    told.ends(DONE, result_raw=b'"other"')


def cancelled_by_nobody(told: Told) -> None:
    told.cancel(False)
    told.ends(CANCELLED, reason=CANCELLED)


def expired_without_ttl(told: Told) -> None:
    told.dies(EXPIRED, 0)


def given_up_by_nobody(told: Told) -> None:
    told.handle("done")
    told.dies(GAVE_UP)


def given_up_early(told: Told) -> None:
    told.handle("sleep", None)
    told.dies("given up after 1 delivery; the last one failed: no", 1, HUNG)


def delivered_to_nobody(told: Told) -> None:
    told.handle("give up", ("raised", "GiveUp"), count=3)
    told.dies(GAVE_UP, 3)


def delivered_more_often(told: Told) -> None:
    told.handle("raise", ("raised", "ValueError"), count=2)
    dead(told)


def failed_by_nothing(told: Told) -> None:
    told.handle("give up", ("raised", "GiveUp"))
    told.dies(GAVE_UP, 1, "ProcessDied: the process of the job ended by signal 9 (SIGKILL)")


def begun_again(told: Told) -> None:
    done(told)
    told.handle(count=2)


def begun_after_its_cancel(told: Told) -> None:
    cancelled(told)
    told.now += NS
    told.handle("long", None)


def untold(told: Told) -> None:
    dead(told)
    told.life.noted.clear()


def without_effect(told: Told) -> None:
    joined(told)
    told.story.left.effects.clear()


def effect_of_nobody(told: Told) -> None:
    done(told)
    told.story.left.effects = [[TASKS, ID]]


def effect_twice(told: Told) -> None:
    joined(told)
    told.story.left.effects *= 2


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (runs_still, "is running"),
        (acknowledged_twice, "was acknowledged twice"),
        (acknowledged_and_dead, "was acknowledged, and is dead"),
        (cancelled_and_done, "was cancelled, and is done"),
        (done_by_nobody, "no handler has done it"),
        (without_result, "has no result"),
        (with_another_result, "has another result"),
        (cancelled_by_nobody, "was cancelled by nobody"),
        (expired_without_ttl, "has no time to live"),
        (given_up_by_nobody, "no handler gave it up"),
        (given_up_early, "of 5"),
        (delivered_to_nobody, "2 deliveries reached nobody"),
        (delivered_more_often, "was delivered more often"),
        (failed_by_nothing, "no handler failed by ProcessDied"),
        (begun_again, "began after"),
        (begun_after_its_cancel, "began after"),
        (untold, "nobody was told"),
        (without_effect, "its effect is not there"),
        (effect_of_nobody, "effects of nobody"),
        (effect_twice, "twice"),
    ],
)
def test_a_broken_life(tell: Callable[[Told], None], said: str) -> None:
    told = Told()
    tell(told)
    with pytest.raises(AssertionError, match=said):
        lives.check_lives(told.lives)


# --- `tidelog why`

PUT, TO = ("added", "put by XADD"), "delivered to w of group workers, delivery"
ACKED = ("acked", "acknowledged and deleted in group workers")
RESULT = ("result", "result stored, 10 bytes")
FAILED = "failed in group workers at worker w: "


def why(tell: Callable[[Told], None], *said: tuple[str, str]) -> None:
    told = Told()
    tell(told)
    events = [Event(kind, text, number, number) for number, (kind, text) in enumerate(said)]
    why_agrees(events, told.life, told.lives)


def test_a_why_that_agrees() -> None:
    why(done, PUT, ("delivered", f"{TO} 1"), RESULT, ACKED)
    failed, died = (
        ("failed", f"{FAILED}{GAVE_UP}"),
        ("dead", f"dead in group workers as 2: {GAVE_UP}"),
    )
    why(dead, PUT, ("delivered", f"{TO} 1"), failed, died, ACKED)
    why(expired, PUT, ("dead", f"dead in group workers as 2: {EXPIRED}"), ACKED)


@pytest.mark.parametrize(
    ("tell", "events", "said"),
    [
        (done, [PUT, ("delivered", f"{TO} 1"), RESULT], "why says open"),
        (done, [PUT, ("delivered", f"{TO} 1"), RESULT, ACKED, ACKED], "several ends"),
        (done, [PUT, RESULT, ACKED], "handlers began"),
        (done, [PUT, ("delivered", f"{TO} 1"), ACKED], "has a result"),
        (
            done,
            [PUT, ("delivered", f"{TO} 1"), ("cancelled", "cancelled"), ACKED],
            "why says cancelled",
        ),
        (dead, [PUT, ("delivered", f"{TO} 1"), ("dead", "dead: x"), ACKED], "and 0 failures"),
        (
            dead,
            [
                PUT,
                ("delivered", f"{TO} 1"),
                ("failed", f"{FAILED}{HUNG}"),
                ("dead", "dead: x"),
                ACKED,
            ],
            "no handler failed by TimeLimitExceeded",
        ),
        (
            expired,
            [PUT, ("delivered", f"{TO} 2"), ("dead", f"dead: {EXPIRED}"), ACKED],
            "delivered 2",
        ),
    ],
)
def test_a_why_that_does_not_agree(
    tell: Callable[[Told], None], events: list[tuple[str, str]], said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        why(tell, *events)
