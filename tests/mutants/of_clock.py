"""Mutants of the two clocks: the store's time, which never goes back, and the wall clock that was set back."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

CLOCK: Final = "store/clock.py"
CHECKPOINTS: Final = "store/checkpoints.py"
TICKS: Final = "jobs/work/ticks.py"
LEAD: Final = "tests/store/test_lead.py"
SCHEDULES: Final = "tests/jobs/test_schedules.py"
LATER: Final = "tests/jobs/test_queue_later.py"

MUTANTS: Final = (
    Mutant(
        "clock/a-closed-store-stands-still",
        CLOCK,
        "    return max(newest, wall + lead) if wall < newest else wall\n",
        "    return max(newest, wall)\n",
        (f"{LEAD}::test_a_close_notes_the_lead_and_the_next_open_counts_the_time_between",),
        "The time in which a store is closed counts, also if its time is ahead of the clock.",
    ),
    Mutant(
        "clock/leads-add-up",
        CLOCK,
        "    return max(newest, wall + lead) if wall < newest else wall\n",
        "    return max(newest, wall + lead)\n",
        (f"{LEAD}::test_a_clock_that_passes_the_stores_time_ends_the_lead",),
        "A clock that is ahead again adds nothing to the lead of the store's time.",
    ),
    Mutant(
        "clock/any-clock-is-believed",
        CLOCK,
        "    leads = store - wall >= LEAP_MS and wall >= SET_MS\n",
        "    leads = store - wall >= LEAP_MS\n",
        (f"{LEAD}::test_a_clock_that_is_not_set_is_not_believed",),
        "A clock that shows 1970 is not believed.",
    ),
    Mutant(
        "clock/a-close-notes-nothing",
        CHECKPOINTS,
        "            if self._possible and (nbytes >= TAIL_BYTES or lead):\n",
        "            if self._possible and nbytes >= TAIL_BYTES:\n",
        (f"{LEAD}::test_a_close_notes_the_lead_and_the_next_open_counts_the_time_between",),
        "A close notes how far the store's time is ahead.",
    ),
    Mutant(
        "clock/a-running-store-notes-nothing",
        CHECKPOINTS,
        "        if self._has_other_lead(core) and self._is_automatic():\n",
        "        if self._has_other_lead(core) and False:\n",
        (f"{LEAD}::test_kills",),
        "A store that is killed has noted how far its time was ahead.",
    ),
    Mutant(
        "clock/read-only-stands-still",
        "store/read_only.py",
        "        if resumes > landing.time_ms():\n",
        "        if False:\n",
        (f"{LEAD}::test_a_store_that_is_read_beside_its_writer_runs_on",),
        "The time of a store that is read beside its writer runs on.",
    ),
    Mutant(
        "clock/a-blocked-claim-waits-for-the-clock",
        "store/commit/blocked.py",
        "            claim = max(0, waiter.claim_at - self._landing.time_ms() + 1) / 1000\n",
        "            claim = max(0, waiter.claim_at - clock.time_ns() // 1_000_000 + 1) / 1000\n",
        (f"{LEAD}::test_a_blocked_claim_is_served_when_the_entry_is_idle_long_enough",),
        "A blocked claim wakes by the store's time.",
    ),
    Mutant(
        "clock/segments-without-age",
        "store/opening.py",
        "            return core.landing.time_ms() if following is None else following.time_ns() // 1_000_000\n",
        "            return self._clock.time_ns() // 1_000_000\n",
        (f"{LEAD}::test_old_segments_are_deleted_by_the_stores_time",),
        "The age of a segment is told by the store's time.",
    ),
    Mutant(
        "clock/at-by-the-stores-time",
        "jobs/work/later.py",
        "                due += self.lead\n",
        "                pass\n",
        (f"{LATER}::test_a_clock_that_is_set_back_makes_no_job_with_a_time_due_early",),
        "A job with a time is due when the clock shows it.",
    ),
    Mutant(
        "clock/ticks-stay-ahead",
        TICKS,
        "            self._to_reset = [schedule for _, schedule in group.pending.by_age(0)]\n",
        "            self._to_reset = []\n",
        (f"{SCHEDULES}::test_a_clock_that_is_set_back_by_months_sets_the_ticks_of_many_schedules",),
        "A clock that is set back sets the next ticks of schedules.",
    ),
    Mutant(
        "clock/some-ticks-stay-ahead",
        TICKS,
        "            self._to_reset[LOOK_SCHEDULES:],\n",
        "            [],\n",
        (f"{SCHEDULES}::test_a_clock_that_is_set_back_by_months_sets_the_ticks_of_many_schedules",),
        "A clock that is set back sets the next ticks of all schedules.",
    ),
    Mutant(
        "clock/an-interval-waits-for-the-clock",
        TICKS,
        '    return rule.name + b"@%d" % (tick if rule.cron is not None else tick + lead)\n',
        '    return rule.name + b"@%d" % tick\n',
        (f"{SCHEDULES}::test_an_interval_goes_on_when_the_clock_is_set_back",),
        "An interval goes on when the clock is set back.",
    ),
    Mutant(
        "clock/a-time-that-comes-twice",
        TICKS,
        '    return rule.name + b"@%d" % (tick if rule.cron is not None else tick + lead)\n',
        '    return rule.name + b"@%d" % (tick + lead)\n',
        (f"{SCHEDULES}::test_a_time_that_comes_twice_has_one_tick_of_a_cron_expression",),
        "A time that comes twice has one tick of a cron expression.",
    ),
)
