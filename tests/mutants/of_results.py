"""Mutants of the results of jobs: one unit with the acknowledgement, and every wait ends."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

RESULTS: Final = "jobs/work/results.py"
SETTLE: Final = "jobs/work/settle.py"
ENDS: Final = "jobs/work/ends.py"
ORIGINS: Final = "jobs/work/origins.py"
TESTS: Final = "tests/jobs/test_results.py"
ORIGINS_TESTS: Final = "tests/jobs/test_origins.py"
MOVED: Final = "tests/client/test_results_of_moved_jobs.py"

MUTANTS: Final = (
    Mutant(
        "results/under-the-new-id",
        SETTLE,
        "    first = first_id(held.job, held.row)\n    return [*_left(held, ctx), result_words",
        "    first = ids.text(held.job)\n    return [*_left(held, ctx), result_words",
        (f"{TESTS}::test_a_redriven_job_leaves_its_result_under_the_first_id",),
        "The result of a redriven job has the ID that `put` returned.",
    ),
    Mutant(
        "results/without-the-fence",
        SETTLE,
        "    if held.find(ctx) is None:\n        return None\n    first = first_id",
        "    first = first_id",
        (f"{TESTS}::test_a_worker_that_lost_its_lease_leaves_no_result",),
        "A worker that lost its lease leaves no result.",
    ),
    Mutant(
        "results/never-expire",
        RESULTS,
        'value, b"PXAT", b"%d" % until]',
        'value, b"PXAT", b"%d" % (until + 10**10)]',
        (f"{TESTS}::test_a_result_expires",),
        "A result expires.",
    ),
    Mutant(
        "results/a-plain-end-wakes-nobody",
        SETTLE,
        "    if known.results.asked:\n        known.ended([first_id(job, row)])\n",
        "",
        (f"{TESTS}::test_a_job_that_ends_without_a_result",),
        "A caller who waits is told of an end without a result.",
    ),
    Mutant(
        "results/a-death-in-a-fetch-wakes-nobody",
        ENDS,
        "    known.ended(known.results.firsts(stream, jobs))\n",
        "",
        (f"{TESTS}::test_a_job_that_dies",),
        "A caller who waits is told of a job that dies undelivered.",
    ),
    Mutant(
        "results/a-kept-job-may-come",
        RESULTS,
        "        return group is None or job > group.last_id or group.pending.contains(job)\n",
        "        return True\n",
        (f"{TESTS}::test_a_kept_job_that_is_done_has_no_result",),
        "A job that is done and kept is not waited for.",
    ),
    Mutant(
        "results/a-moved-job-wakes-nobody",
        SETTLE,
        "        known.ended([first_id(job, row)])\n",
        "        known.ended([ids.text(job)])\n",
        (f"{MOVED}::test_every_end[embedded threads-due]",),
        "A caller who waits is told of the end of a job by the ID that `put` returned.",
    ),
    Mutant(
        "results/a-redriven-job-has-ended",
        RESULTS,
        "        return self._is_noted(ctx, origins) if origins.read_on(self._core, ctx) else None\n",
        "        return False\n",
        (f"{MOVED}::test_every_end[embedded threads-redriven]",),
        "A redriven job is waited for by its first ID.",
    ),
    Mutant(
        "results/half-known-is-ended",
        ORIGINS,
        "            if left <= 0:\n                return False\n",
        "            if left <= 0:\n                break\n",
        (f"{MOVED}::test_notes_are_made_page_by_page[embedded]",),
        "A job is said to have ended only when all entries were read.",
    ),
    Mutant(
        "results/notes-stay",
        ORIGINS,
        "                    del self._now[first]\n",
        "                    pass\n",
        (f"{MOVED}::test_notes_go_with_the_jobs[embedded threads]",),
        "The note of a job goes with it.",
    ),
    Mutant(
        "results/notes-go-before-the-unit",
        ORIGINS,
        "                if first in self._now and self.find(core.state, first) is None:\n",
        "                if first in self._now:\n",
        (f"{ORIGINS_TESTS}::test_a_unit_that_fails_keeps_the_note",),
        "A unit that fails leaves the note of its job.",
    ),
    Mutant(
        "results/notes-of-a-stream-before",
        ORIGINS,
        "        if self._of() is not ctx.state or self._is_out_of_date(lanes):\n",
        "        if self._of() is not ctx.state:\n",
        (f"{ORIGINS_TESTS}::test_another_client_deletes_jobs",),
        "A stream that another client has replaced is read anew.",
    ),
    Mutant(
        "results/a-status-by-the-present-id",
        "jobs/found.py",
        "        present = self.job if moved is None else moved[1]\n",
        "        present = self.job\n",
        ("tests/client/faces/test_job.py::test_a_delayed_job_has_its_first_id_for_good",),
        "The ID that `put` returned finds the status of a job that has another one now.",
    ),
)
