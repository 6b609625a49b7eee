"""Mutants of retry policies: how often, after which pauses and after which exceptions a job is tried again."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

FACES: Final = "tests/client/faces/test_retries.py"

MUTANTS: Final = (
    Mutant(
        "retries/a-lost-delivery-ends-by-the-queue",
        "jobs/work/look.py",
        "        most = self._options.most(None if row is None else rows.retry_of(row))\n",
        "        most = self._options.most(None)\n",
        (f"{FACES}::test_the_policy_counts_deliveries_that_were_lost",),
        "The `max` of a job's own policy counts deliveries that were lost.",
    ),
    Mutant(
        "retries/a-failure-ends-by-the-queue",
        "jobs/work/settle.py",
        "    pause = options.pause(rows.retry_of(held.row), held.count, delay, chance)\n",
        "    pause = options.pause(None, held.count, delay, chance)\n",
        (f"{FACES}::test_a_job_is_tried_again_by_its_own_policy",),
        "A job is tried again by its own policy.",
    ),
    Mutant(
        "retries/a-dead-job-loses-its-policy",
        "jobs/rows.py",
        "        elif name in (VALUE, KEY, RETRY, TIME_LIMIT, ORIGIN) or name.startswith(HEADER):\n",
        "        elif name in (VALUE, KEY, ORIGIN) or name.startswith(HEADER):\n",
        (f"{FACES}::test_a_redriven_job_keeps_its_policy",),
        "A redriven job keeps its retry policy.",
    ),
    Mutant(
        "retries/classes-are-not-asked",
        "jobs/raised.py",
        "    if policy is not None and not policy.retries(error):\n",
        "    if False:\n",
        (f"{FACES}::test_classes_decide_whether_a_job_is_tried_again",),
        "A job is not tried again after an exception that its policy excludes.",
    ),
    Mutant(
        "retries/a-lease-is-a-pause",
        "jobs/work/look.py",
        "        period = self._options.lease\n",
        "        period = self._options.retry_after\n",
        (f"{FACES}::test_a_lease_is_apart_from_the_pauses",),
        "The lease of a worker that is gone ends after the option `lease`.",
    ),
    Mutant(
        "retries/a-living-worker-loses-its-job",
        "jobs/work/leases.py",
        "            due = mono - delivery.renewed >= delivery.options.lease / 3\n",
        "            due = mono - delivery.renewed >= delivery.options.retry_after / 3\n",
        (f"{FACES}::test_a_lease_is_renewed_in_time",),
        "A lease that is shorter than the pauses is renewed in time.",
    ),
    Mutant(
        "retries/an-older-server-drops-a-policy",
        "jobs/verbs/put.py",
        "    return dedup if job.retry is None else all_needs(dedup, RETRY)\n",
        "    return dedup\n",
        ("tests/client/test_retry_policies.py::test_a_call_that_the_server_does_not_know",),
        "A put with a retry policy is refused if the server does not know policies.",
    ),
)
