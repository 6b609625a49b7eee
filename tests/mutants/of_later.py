"""Mutants of delayed jobs and schedules: in time, once, and for every worker that waits."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

LATER: Final = "jobs/work/later.py"
TICKS: Final = "jobs/work/ticks.py"
JOBS: Final = "tests/jobs/test_queue_later.py"
SCHEDULES: Final = "tests/jobs/test_schedules.py"

MUTANTS: Final = (
    Mutant(
        "later/moved-and-kept",
        LATER,
        "        log_acked(ctx, options.later_key, stream, GROUP, pack(sorted(jobs)), sorted(here))\n",
        "        core.landing.land(list(ctx.effects))\n        ctx.effects.clear()\n"
        "        log_acked(ctx, options.later_key, stream, GROUP, pack(sorted(jobs[1:])), [])\n",
        (f"{JOBS}::test_jobs_are_due_in_the_order_of_their_times",),
        "A due job leaves the delayed ones in the unit that puts it into the queue.",
    ),
    Mutant(
        "later/a-second-too-early",
        LATER,
        "        end, disordered = now - SHIFT_MS, self.disordered\n",
        "        end, disordered = now - SHIFT_MS + 1000, self.disordered\n",
        (f"{JOBS}::test_jobs_are_due_in_the_order_of_their_times",),
        "No job is delivered before its time.",
    ),
    Mutant(
        "later/leaps-shorten-delays",
        LATER,
        "        if leap >= LEAP_MS:\n",
        "        if leap >= LEAP_MS and False:\n",
        (f"{JOBS}::test_a_leap_of_the_wall_clock_shortens_no_delay",),
        "A wall clock that leaps forward shortens no delay.",
    ),
    Mutant(
        "later/waiting-workers-are-not-told",
        LATER,
        "            core.waiting.signal([self.place])\n",
        "            pass\n",
        (f"{JOBS}::test_a_waiting_worker_wakes_when_a_job_is_moved",),
        "A worker that waits learns of a job that is due before all others.",
    ),
    Mutant(
        "later/ids-of-both-kinds",
        LATER,
        "        return now << 64 | FIRST_SEQ\n",
        "        return now << 64\n",
        (f"{JOBS}::test_no_id_of_a_delayed_job_is_one_of_a_job_put_at_once",),
        "No delayed job has the ID of a job that was put at once.",
    ),
    Mutant(
        "later/dedup-ids-forgotten",
        "jobs/putting.py",
        "        for key in (options.later_key, *(options.lane(p).key for p in self.engine.used(ctx))):\n",
        "        for key in (*(options.lane(p).key for p in self.engine.used(ctx)),):\n",
        (f"{JOBS}::test_dedup_ids_of_delayed_jobs_and_of_others_are_one_set",),
        "A dedup ID of a delayed job is known to every put.",
    ),
    Mutant(
        "later/expired-retries-are-delivered",
        "jobs/work/look.py",
        "        expired = row is not None and rows.is_expired(row, self._ctx.now)\n",
        "        expired = False\n",
        (f"{JOBS}::test_a_retry_is_expired_too",),
        "A job is not delivered after its time to live, for a retry either.",
    ),
    Mutant(
        "ticks/the-next-is-the-same",
        TICKS,
        "            words.append(tick_words(schedule, following, count))\n",
        "            words.append(tick_words(schedule, tick, count))\n",
        (f"{SCHEDULES}::test_an_interval",),
        "A tick sets the time of the next one.",
    ),
    Mutant(
        "ticks/pauses-are-made-up",
        "jobs/verbs/schedule.py",
        "        tick = found.rule.after(wall) if found.pending is None else None\n",
        "        tick = found.rule.after(found.rule.anchor) if found.pending is None else None\n",
        (f"{SCHEDULES}::test_pause_resume_and_remove",),
        "Ticks of a pause are not made up.",
    ),
    Mutant(
        "ticks/winter-time-goes-back",
        "jobs/rules.py",
        "    return next((tick for tick in _ticks(cron, tz, ms) if tick > ms), None)\n",
        "    return next(_ticks(cron, tz, ms), None)\n",
        (f"{SCHEDULES}::test_a_tick_is_never_before_the_time_that_it_follows",),
        "The next tick is after the last one.",
    ),
)
