"""Mutants of the results of jobs: one unit with the acknowledgement, and every wait ends."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

RESULTS: Final = "jobs/work/results.py"
SETTLE: Final = "jobs/work/settle.py"
FETCH: Final = "jobs/work/fetch.py"
TESTS: Final = "tests/jobs/test_results.py"

MUTANTS: Final = (
    Mutant(
        "results/under-the-new-id",
        SETTLE,
        "    first = first_id(held.job, held.row)\n    return [*_left(held), result_words",
        "    first = ids.text(held.job)\n    return [*_left(held), result_words",
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
        "    if shared.results.asked:\n        shared.ended([ids.text(job)])\n",
        "",
        (f"{TESTS}::test_a_job_that_ends_without_a_result",),
        "A caller who waits is told of an end without a result.",
    ),
    Mutant(
        "results/a-death-in-a-fetch-wakes-nobody",
        FETCH,
        "            shared.ended(first_id_of_dead(row) for row in dead)\n",
        "",
        (f"{TESTS}::test_a_job_that_dies",),
        "A caller who waits is told of a job that dies undelivered.",
    ),
    Mutant(
        "results/a-kept-job-may-come",
        RESULTS,
        "    return group is None or self.job > group.last_id or group.pending.contains(self.job)\n",
        "    return True\n",
        (f"{TESTS}::test_a_kept_job_that_is_done_has_no_result",),
        "A job that is done and kept is not waited for.",
    ),
)
