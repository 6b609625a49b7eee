"""The queues of the kill test, with their limits. A queue that has more features is one more row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import tidelog
from tidelog.jobs.dedup import REPLACE, UNTIL_DONE

RETRY_AFTER_S: Final = 1.0
OFTEN: Final = 1_000_000
TIMEOUT_S: Final = 120.0  # of the clients: a busy machine starts an owner in this time


@dataclass(frozen=True)
class Kind:
    """One queue, and how the processes use it.

    options     those of `Store.queue`
    share       of the puts of a putter
    threads     of each worker process
    batch       jobs of one fetch
    blocks      the seconds that a fetch waits
    work_s      a job takes so long at most
    ends        ways to end a job, one of which is drawn for each
    delays      of puts, in seconds
    ttls        of puts, in seconds
    priorities  of puts
    keys        of puts
    dedups      modes of the dedup IDs of puts; None = no dedup ID
    cancels     share of the jobs that their putter cancels, which may run by then
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    share: int = 0
    threads: int = 1
    batch: int = 1
    blocks: tuple[float, ...] = (0.3,)
    work_s: float = 0.0
    ends: tuple[str, ...] = ("ack",)
    delays: tuple[float | None, ...] = (None,)
    ttls: tuple[float | None, ...] = (None,)
    priorities: tuple[int, ...] = (0,)
    keys: tuple[str | None, ...] = (None,)
    dedups: tuple[str | None, ...] = (None,)
    cancels: float = 0.0

    def options_of(self, **more: Any) -> dict[str, Any]:
        """The options of the queue. A job is tried for ever unless they say otherwise."""
        return {"retry_after": RETRY_AFTER_S, "max_deliveries": OFTEN, **self.options, **more}


FAR_S: Final = 3600.0  # a delay that no run sees the end of
CONCURRENCY: Final = 2
PER_KEY: Final = 1
RATE: Final = 15
FEW: Final = 2  # deliveries of a job that is given up soon
HELD_IDS: Final = 3  # dedup IDs that jobs have until they are done
PAUSED: Final = "paused"  # the queue that putters pause and resume
PAUSES_S: Final = (0.0, 0.05, 0.4)
EFFECTS: Final = "effects"  # the queue into which `done_and` puts; nobody works on it
ENDS: Final = (*["ack"] * 5, "result", "result", "nack", "release", "and", "extend", "fail")
KINDS: Final = (
    Kind(
        "plain",
        share=6,
        threads=2,
        blocks=(0.0, 0.3),
        work_s=0.002,
        ends=ENDS,
        delays=(*[None] * 6, 0.0, 0.05, 0.3, 1.0, 2.0, FAR_S),
        priorities=(0, 0, 3),
        keys=(None, "unlimited"),
        cancels=0.1,
    ),
    Kind("batches", share=3, batch=5, ends=(*ENDS, "with", "with")),
    Kind(
        "narrow",
        {"concurrency": CONCURRENCY, "max_deliveries": 5, "max_depth": 40},
        share=5,
        threads=2,
        work_s=0.25,
        ends=ENDS,
        delays=(None, None, 0.3),
        ttls=(None, 0.2, 30.0),
        priorities=(0, 0, 5, 9),
    ),
    Kind(
        "rated",
        {"rate": f"{RATE}/s"},
        share=4,
        blocks=(0.0, 0.3),
        ends=ENDS,
        priorities=(0, 1),
    ),
    Kind(
        "keyed",
        {"concurrency_per_key": PER_KEY},
        share=4,
        threads=2,
        work_s=0.01,
        ends=ENDS,
        delays=(*[None] * 6, 0.2),
        priorities=(0, 0, 0, 7),
        keys=("a", "b", "c", None),
    ),
    Kind(
        "few",
        {"max_deliveries": FEW},
        share=3,
        work_s=0.03,
        ends=("ack", "ack", "nack", "release", "result"),
        priorities=(0, 0, 9),
    ),
    Kind(
        "fewer",
        {"max_deliveries": FEW},
        share=2,
        batch=4,
        work_s=0.03,
        ends=("ack", "with", "with", "nack"),
    ),
    Kind(
        "once",
        share=3,
        work_s=0.05,
        ends=("ack", "ack", "nack", "release", "and"),
        delays=(None, None, None, 0.3),
        priorities=(0, 0, 2),
        dedups=(None, UNTIL_DONE, UNTIL_DONE, REPLACE),
    ),
    Kind(
        PAUSED,
        {"retry": tidelog.RetryPolicy(max=OFTEN, base=0.05, cap=0.2)},
        share=3,
        blocks=(0.0, 0.3),
        work_s=0.02,
        ends=("ack", "ack", "result", "nack", "raise", "release"),
        delays=(None, None, None, 0.2),
        priorities=(0, 0, 4),
        cancels=0.2,
    ),
    Kind("ticks", ends=("ack", "ack", "nack")),
)
BY_NAME: Final = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Plan:
    """A schedule. `every_ms`: the distance of its ticks."""

    name: str
    every_ms: int
    given: dict[str, Any]


PLANS: Final = (
    Plan("all", 1000, {"every": 1, "catch_up": "all", "priority": 4}),
    Plan("one", 1000, {"cron": "* * * * * *", "tz": "Europe/Berlin", "catch_up": "one"}),
    Plan("none", 2000, {"cron": "*/2 * * * * *", "catch_up": "none"}),
)
