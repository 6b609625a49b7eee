"""Mutants of jobs that were lost with their process: they run alone, and nobody waits for them for ever."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

ALONE: Final = "jobs/work/alone.py"
LOOK: Final = "jobs/work/look.py"
TESTS: Final = "tests/jobs/test_alone.py"
SHARED: Final = "tests/client/test_alone.py"

MUTANTS: Final = (
    Mutant(
        "alone/beside-any-job",
        ALONE,
        "        return not self._alone.holds_jobs(self._ctx, self._process, self._mono, self._ending)\n",
        "        return True\n",
        (f"{TESTS}::test_a_process_with_jobs_takes_no_more_until_it_can_take_the_suspect",),
        "A process takes a job that was lost with another one only if it holds no job.",
    ),
    Mutant(
        "alone/others-join-at-once",
        ALONE,
        "                fresh = turn.lone is not None and mono < turn.lone_at + turn.window\n",
        "                fresh = False\n",
        (f"{TESTS}::test_other_jobs_wait_for_one_lease_at_most",),
        "A process that holds a job that was lost takes no other one.",
    ),
    Mutant(
        "alone/others-wait-for-ever",
        ALONE,
        "                fresh = turn.lone is not None and mono < turn.lone_at + turn.window\n",
        "                fresh = turn.lone is not None\n",
        (f"{TESTS}::test_other_jobs_wait_for_one_lease_at_most",),
        "Other jobs wait for a job that was lost for the length of its lease at most.",
    ),
    Mutant(
        "alone/a-process-clears-for-ever",
        ALONE,
        "            if turn.clears and self._mono >= turn.began + turn.window:\n",
        "            if False:\n",
        (f"{TESTS}::test_a_process_that_clears_waits_for_one_lease_at_most",),
        "A job that hangs does not keep jobs that were lost from being delivered.",
    ),
    Mutant(
        "alone/suspects-come-first",
        ALONE,
        "            if turn.rests is not None and self._others():\n",
        "            if False:\n",
        (f"{TESTS}::test_other_jobs_come_first_for_as_long_as_a_suspect_ran",),
        "Many jobs that were lost do not stop a queue.",
    ),
    Mutant(
        "alone/dead-by-company",
        LOOK,
        "        return count > most or most == 1 or self._was_lost(job, count - 1)\n",
        "        return True\n",
        (f"{TESTS}::test_a_last_delivery_that_was_lost_with_others_does_not_kill",),
        "A job that was lost with others is not dead before it has run alone.",
    ),
    Mutant(
        "alone/one-delivery-becomes-two",
        LOOK,
        "        return count > most or most == 1 or self._was_lost(job, count - 1)\n",
        "        return count > most or self._was_lost(job, count - 1)\n",
        (f"{TESTS}::test_one_delivery_at_most_stays_one",),
        "With `max_deliveries=1` no job is delivered twice.",
    ),
    Mutant(
        "alone/given-back-and-forgotten",
        LOOK,
        '            elif self._take(job, row[2], b"", 0, self._was_lost(job, row[2])):\n',
        '            elif self._take(job, row[2], b"", 0, False):\n',
        (f"{TESTS}::test_a_suspect_that_was_given_back_is_one_still",),
        "A job that was lost, and was released since, still runs alone.",
    ),
    Mutant(
        "alone/in-a-batch",
        "jobs/work/selection.py",
        "        if asking is not None and (asking.lone or asking.only):\n",
        "        if asking is not None and asking.only:\n",
        (f"{TESTS}::test_a_batch_has_no_suspect_beside_others",),
        "A batch has no job that was lost beside others.",
    ),
    Mutant(
        "alone/connections-are-processes",
        "client/link.py",
        '            process = b"%b-%d" % (_PROCESS, os.getpid())\n',
        '            process = b"%b-%d" % (_PROCESS, id(wire))\n',
        (f"{SHARED}::test_all_connections_of_a_process_wait_for_its_suspect",),
        "All connections of a client's process wait for the job that was lost, of any of its stores.",
    ),
    Mutant(
        "alone/a-restart-forgets",
        "server/jobs.py",
        "                    for job in suspects:\n",
        "                    for job in ():\n",
        (f"{SHARED}::test_a_new_server_knows_which_process_holds_a_suspect",),
        "A server that was started anew knows which process runs a job alone.",
    ),
)
