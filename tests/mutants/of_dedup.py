"""Mutants of dedup IDs: who has one, and what frees it."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

FACES: Final = "tests/client/faces/test_dedup.py"

MUTANTS: Final = (
    Mutant(
        "dedup/a-cancel-frees-nothing",
        "jobs/work/cancelling.py",
        "        self._free(ctx, job)\n        ctx.effects += free_window(ctx, options, (job,))\n",
        "",
        (f"{FACES}::test_the_id_of_a_cancelled_job_is_free",),
        "The dedup ID of a cancelled job is free.",
    ),
    Mutant(
        "dedup/replaced-in-two-units",
        "jobs/putting.py",
        "            words += self._cancel_words(ctx, found)\n",
        "            from tidelog.store.commit.batch import land_commands\n"
        "            land_commands(self.engine.core, ctx, self._cancel_words(ctx, found))\n",
        ("tests/jobs/test_queue_units.py::test_a_replacement_is_one_unit_wherever_the_power_goes",),
        "A put that replaces a job cancels that and puts its own in one unit.",
    ),
    Mutant(
        "dedup/a-job-that-runs-is-replaced",
        "jobs/work/freeing.py",
        "    return not all(_waits(group, job) or _unseen(group, job) for group in stream.groups.values())\n",
        "    return False\n",
        (f"{FACES}::test_a_job_that_runs_is_not_replaced",),
        "A job that has begun is not replaced.",
    ),
    Mutant(
        "dedup/due-and-free",
        "jobs/work/later.py",
        "            _take_along(ctx, options, moved[priority], added)\n",
        "",
        (f"{FACES}::test_a_moved_job_keeps_its_id",),
        "A delayed job holds its dedup ID when it becomes due.",
    ),
    Mutant(
        "dedup/done-and-taken",
        "jobs/work/settle.py",
        "        ctx.effects += let_go(ctx, options, stream, (job,))\n",
        "        pass\n",
        (f"{FACES}::test_many_jobs_until_done_leave_nothing_behind",),
        "A job that is done leaves nothing of the dedup ID that it held.",
    ),
)
