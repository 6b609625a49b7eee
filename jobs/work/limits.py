"""Limits: how many jobs a fetch may deliver, by the options `concurrency` and `rate`. Decisions under the store's lock.

concurrency   counts the pending jobs that have an owner. They are in the log, so the limit survives a restart: a job of
              a dead worker counts until another worker takes it over, and the takeover does not change the count.
rate          counts the deliveries of the last period, retries included, in slices of a twentieth of the period. Each
              fetch stores them in the unit of its delivery, as the string `NAME:rate:GROUP`:

                  <ms of a slice> <start of a slice, unix ms>:<deliveries> ...

A slice counts until the whole period has passed since its end. So no span of time that is as long as the period has
more deliveries than the rate says, and a queue that is always full gets at least 20 of 21 parts of the rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from tidelog.engine.api import SET, Context, Group
from tidelog.jobs.options import Options
from tidelog.jobs.rates import Rate
from tidelog.jobs.streams import wrong_type

SLICES: Final = 20
# A blocked fetch looks again after this time: an acknowledgement of another client wakes nobody.
LOOK_SECONDS: Final = 1.0


class Delivered:
    """The deliveries of the last period, as they are stored.

    left      how many more jobs may be delivered now
    wait_ms   if there are none: when the oldest slice stops to count, in ms from now
    """

    __slots__ = ("left", "wait_ms", "_key", "_rate", "_slices", "_step")

    def __init__(self, ctx: Context, key: bytes, rate: Rate) -> None:
        """Raises ResponseError for a key of another type."""
        self._key, self._rate = key, rate
        self._step = rate.period // SLICES
        stored = ctx.lookup(key)
        if stored is not None and not isinstance(stored, bytes):
            raise wrong_type(key, "string")
        step, slices = _parsed(stored or b"")
        # Another program may have used another rate, and so other slices.
        end = step + rate.period
        self._slices = [each for each in slices if each[0] + end > ctx.now]
        self._step = max(self._step, step) if self._slices else self._step
        self.left = max(0, rate.jobs - sum(count for _, count in self._slices))
        self.wait_ms = self._slices[0][0] + end - ctx.now if self._slices else 0

    def log(self, ctx: Context, jobs: int) -> None:
        """Log that `jobs` jobs are delivered now."""
        slices, step = self._slices, self._step
        start = ctx.now - ctx.now % step
        if slices and slices[-1][0] >= start:
            slices[-1][1] += jobs
        else:
            slices.append([start, jobs])
        text = b"%d " % step + b" ".join(b"%d:%d" % (at, count) for at, count in slices)
        until = slices[-1][0] + step + self._rate.period
        ctx.effects.append((SET, ctx.db, self._key, text, max(until, ctx.now + 1)))


def _parsed(stored: bytes) -> tuple[int, list[list[int]]]:
    """(ms of a slice, slices) as they are stored; (0, []) for anything else, which another client may have written."""
    step, _, rest = stored.partition(b" ")
    try:
        slices = [[int(part) for part in each.split(b":")] for each in rest.split()]
        if int(step) > 0 and all(len(each) == 2 for each in slices):
            return int(step), slices
    except ValueError:
        pass
    return 0, []


class Limits:
    """How many jobs one decision may still deliver.

    jobs     of all kinds                            free     of those that no worker holds
    rate     the deliveries of the last period, if the queue has a `rate`
    """

    __slots__ = ("jobs", "free", "rate")

    def __init__(self, batch: int) -> None:
        self.jobs, self.free = batch, math.inf
        self.rate: Delivered | None = None

    def heed(self, ctx: Context, options: Options, groups: Iterable[Group], finished: int) -> None:
        """Heed the limits of the queue. `groups`: those of all lanes. `finished` of the jobs that workers hold end in
        the same unit. Raises ResponseError for a rate's key of another type.
        """
        if options.concurrency is not None:
            held = sum(len(group.pending) - group.pending.nacked() for group in groups)
            self.free = options.concurrency - (held - finished)
        if options.rate is not None:
            self.rate = Delivered(ctx, options.rate_key, options.rate)
            self.jobs = min(self.jobs, self.rate.left)

    @property
    def stop_all(self) -> bool:
        """Whether nothing can be delivered, though jobs may be due."""
        return self.jobs == 0 or self.free <= 0

    def wait(self) -> float:
        """In how many seconds to look again if they stop all.

        A rate allows the next job although no job ended, and another client's acknowledgement wakes no worker.
        """
        seconds = LOOK_SECONDS if self.rate is None or self.jobs else self.rate.wait_ms / 1000
        return max(0.001, min(seconds, LOOK_SECONDS))
