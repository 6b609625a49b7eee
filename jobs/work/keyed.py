"""Keyed: the sources of a lane if keys are limited. See selection.py.

First the jobs that were set aside and whose keys have a place now, then new ones. New jobs whose keys have none are
delivered and given back in the same unit, with the delivery count 0, so that the group has passed them.
"""

from __future__ import annotations

import math
from itertools import chain, repeat
from typing import Any, Final

from tidelog.engine.api import NOBODY, XACK, XNACK, Entries, EntryRow, log_new, reading
from tidelog.engine.idlist import pack
from tidelog.jobs import rows
from tidelog.jobs.rows import key_of
from tidelog.jobs.work.keys import PASS_MAX, Keys
from tidelog.jobs.work.selection import Decision, Selection

GROWTH: Final = 8  # how many more jobs the next read takes, if all of the last one were set aside


class Keyed:
    """The search of one decision in one lane.

    passed    new jobs that are set aside
    """

    def __init__(self, now: Decision, found: Selection, keys: Keys) -> None:
        self._ctx, self._place, self._worker, self._keys = now.ctx, found.lane, now.worker, keys
        self._lane = found.lane.known.priority
        most = found.lane.options.concurrency_per_key
        self._most = math.inf if most is None else most
        # given back in this unit: due at the next look
        self._refused = {job for each in now.ends.left for job, _, _ in each.unseen}
        self._found = found
        found.begin_source()
        self._limits = now.limits
        self.passed: list[int] = []

    def take_aside(self, left: int) -> None:
        """Take at most `left` jobs that were set aside and have a place now."""
        stream, pending = self._place.stream, self._place.group.pending
        gone: list[int] = []
        taken = 0
        while taken < left and not self._found.full:
            ready = self._keys.take(self._lane, self._most, left - taken, self._refused)
            if not ready:
                break
            for job in ready:
                held, row = pending.get(job), stream.get(job)
                if held is None:  # another client has ended it
                    self._keys.ended(self._lane, (job,))
                elif held[1] != NOBODY:
                    pass  # another client has claimed it; it is in progress
                elif row is None:  # another client has deleted the entry
                    gone.append(job)
                    self._keys.ended(self._lane, (job,))
                elif rows.is_expired(row, self._ctx.now):
                    self._expire(job, row)
                else:
                    self._found.claim(job, row, held[2] + 1)
                    taken += 1
        self._limits.free -= taken
        if gone:
            options = self._place.options
            ids = pack(sorted(gone))
            self._ctx.effects.append((XACK, self._ctx.db, options.key, options.group_key, ids))

    def take_new(self, left: int, fresh: Entries) -> None:
        """Take at most `left` new jobs, and set those aside whose keys have no place. `fresh`: the next `left` ones."""
        if self._found.full:
            return
        stream, group, want = self._place.stream, self._place.group, left
        if self._take_all(fresh):
            self._log(fresh)
            return
        total, some = 0, fresh
        while True:
            sorted_ = self._sort(some, left)
            total += sorted_
            if self._found.opened or sorted_ < len(some) or len(some) < want or total >= PASS_MAX:
                break
            want = min(want * GROWTH, PASS_MAX)
            some = reading.after(stream, some.ids()[-1], want)
        if total != len(fresh):
            fresh = reading.after(stream, group.last_id, total)
        self._log(fresh)

    def _take_all(self, fresh: Entries) -> bool:
        """Take all of these entries if each has a place or no key, the usual case, which is faster. Else do nothing."""
        if not all(part.lacks(rows.EXPIRES) for part in fresh.parts):
            return False
        whole: list[Any] = list(chain.from_iterable(part.rows() for part in fresh.parts))
        jobs = fresh.ids()
        # `key_of` for each, without a call for most of them
        name = rows.KEY
        keys = [row[3] if len(row) > 3 and row[2] == name else key_of(row) for row in whole]
        keyed: dict[int, Any] = dict(zip(jobs, keys, strict=True))
        if None in keys:
            keyed = {job: key for job, key in keyed.items() if key is not None}
        if not self._keys.begin_all(self._lane, keyed, self._most):
            return False
        self._found.opened = dict.fromkeys(jobs, 1)
        self._found.got += zip(jobs, whole, repeat(1))
        return True

    def _sort(self, fresh: Entries, left: int) -> int:
        """Take the entries with a place, up to the `left`-th, and set the others aside. Returns how many were seen."""
        keys, lane, now, most = self._keys, self._lane, self._ctx.now, self._most
        found = self._found
        seen = 0
        for job, row in fresh:
            assert row is not None  # the entries of a range exist
            seen += 1
            key = key_of(row)
            if rows.is_expired(row, now):
                self._expire(job, row)
                if found.full:
                    break
            elif key is None or keys.has_place(lane, key, most):
                if key is not None:
                    keys.begin(lane, job, key)
                found.opened[job] = 1
                found.got.append((job, row, 1))
                if len(found.opened) == left:
                    break
            else:
                keys.put_aside(lane, job, key)
                self.passed.append(job)
                found.passed = True
        return seen

    def _log(self, fresh: Entries) -> None:
        """Log the delivery of these entries, and that those which were passed go back."""
        ctx, place = self._ctx, self._place
        key, group = place.options.key, place.group
        log_new(ctx, key, place.stream, group, self._worker, fresh)
        if self.passed:
            counts = (0,) * len(self.passed)
            ctx.effects.append((XNACK, ctx.db, key, group.name, pack(self.passed), counts))

    def _expire(self, job: int, row: EntryRow) -> None:
        self._found.bury(job, row, 0, rows.EXPIRED, ())
        self._found.done.append(job)
