"""Mutants of several processes on one store: numbered writes, fenced acknowledgements, leases of connections."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

ONCE: Final = "server/once.py"
NUMBERED: Final = "server/commands/once.py"
PUTTING: Final = "server/commands/queue/putting.py"
DONE: Final = "jobs/verbs/done.py"
JOBS: Final = "server/jobs.py"
LINK: Final = "client/link.py"
KEEPER: Final = "client/keeper.py"
SERVED: Final = "tests/server/test_queue_commands.py"
LATER: Final = "tests/server/test_queue_later.py"
SAME: Final = "tests/client/test_same_number.py"
SHARED: Final = "tests/client/test_shared_queue.py"
CONFIRM: Final = "tests/server/test_queue_confirm.py"
UNSEEN: Final = "tests/client/test_unseen.py"
KEEPING: Final = "tests/client/test_keeper.py"
OWNER: Final = "tests/client/test_owner.py"

MUTANTS: Final = (
    Mutant(
        "once/a-repeated-number-is-new",
        ONCE,
        "        if stored is None:\n            return NEW\n",
        "        if stored is None or stored:\n            return NEW\n",
        (f"{SERVED}::test_a_numbered_write_is_done_once",),
        "A repeated number gets the stored reply, and nothing is done.",
    ),
    Mutant(
        "once/a-late-number-is-new",
        ONCE,
        "        if last < self._number:\n",
        "        if last != self._number:\n",
        (f"{SERVED}::test_a_numbered_write_is_done_once",),
        "A number that the series has passed is refused.",
    ),
    Mutant(
        "once/a-put-is-not-noted",
        PUTTING,
        "        work = partial(once.decided, add)\n",
        "        work = add\n",
        (f"{SERVED}::test_a_numbered_write_is_done_once",),
        "A numbered put stores its number in its own unit.",
    ),
    Mutant(
        "once/a-delayed-put-is-not-noted",
        PUTTING,
        "            return [once.words(ids.text(one.id)), *words]\n",
        "            return words\n",
        (f"{LATER}::test_a_numbered_write_of_a_delayed_job_happens_once",),
        "A numbered put of a delayed job stores its number in its own unit.",
    ),
    Mutant(
        "once/without-the-rights-of-the-command",
        NUMBERED,
        "    if refusal is not None:\n        raise refusal\n",
        "",
        (f"{SERVED}::test_a_numbered_command_needs_the_rights_of_the_command",),
        "A number gives no rights.",
    ),
    Mutant(
        "served/done-without-a-fence",
        DONE,
        "        here = among_held(group, request.worker, some)\n",
        "        here = [job for job, _ in some if group.pending.contains(job)]\n",
        (f"{SERVED}::test_a_job_put_and_done",),
        "A DONE of an earlier delivery does not count.",
    ),
    Mutant(
        "served/jobs-outlive-their-connection",
        JOBS,
        "            lent.delivery.open.pop(place[3], None)\n        self.jobs.clear()\n",
        "        self.jobs.clear()\n",
        (f"{SERVED}::test_a_worker_that_returns_gets_its_jobs_at_once",),
        "Jobs live while the connection of their worker lives.",
    ),
    Mutant(
        "served/renewed-beyond-the-limit",
        JOBS,
        "            if self.limit_at is not None:\n                until = min(until, self.limit_at)\n",
        "",
        (f"{SERVED}::test_a_time_limit_is_not_renewed",),
        "A job with a time limit is taken back, however often it is renewed.",
    ),
    Mutant(
        "served/a-new-server-lends-nothing-again",
        JOBS,
        "                self.desk.hand(session, self, Lent(delivery, beat, None))\n",
        "",
        (f"{SERVED}::test_a_worker_goes_on_after_a_restart_of_the_server",),
        "A server that was started meanwhile lends the jobs again that a living worker names.",
    ),
    Mutant(
        "shared/an-unknown-done-is-a-lost-lease",
        LINK,
        "                if doubt is not None and safe is Safe.FENCED and replies[0] == 0:\n"
        "                    raise unknown(doubt)\n",
        "",
        (f"{SHARED}::test_an_acknowledgement_whose_outcome_is_unknown",),
        "An acknowledgement that may have happened is not told as a lost lease.",
    ),
    Mutant(
        "shared/a-new-server-is-not-told",
        KEEPER,
        "            self._at_once = True\n            self._bell.ring()\n",
        "            self._bell.ring()\n",
        (f"{SHARED}::test_a_connection_that_breaks_renews_the_leases",),
        "A connection that breaks starts a beat that renews all leases.",
    ),
    Mutant(
        "shared/an-unconfirmed-job-is-abandoned",
        "server/jobs.py",
        "            if lent is newest and lent.unconfirmed:\n",
        "            if False:\n",
        (f"{CONFIRM}::test_an_unconfirmed_job_goes_back_uncounted_when_its_connection_ends",),
        "A delivery that no handler saw is no delivery.",
    ),
    Mutant(
        "shared/a-lost-job-is-handed-out",
        "client/consumer.py",
        "                    if not keeper.holds(self._worked, taken[1]):\n",
        "                    if False:\n",
        (f"{KEEPING}::test_a_process_that_was_stopped_does_not_go_on_with_what_it_lost",),
        "A process that was stopped hands out no job that it lost.",
    ),
    Mutant(
        "shared/a-release-is-not-numbered",
        "client/remote.py",
        "                words.append(partial(_if_it_can, RELEASE, numbered(said, pooled), said))\n",
        "                words.append(said)\n",
        (f"{SAME}::test_a_release_is_made_once",),
        "A repeated RELEASE leaves the next delivery of its job alone.",
    ),
    Mutant(
        "shared/a-delivery-is-its-number",
        "client/job.py",
        "        if one.lost and keeper.has_again(worked, one):\n",
        "        if False:\n",
        (f"{SAME}::test_a_worker_that_was_stopped_leaves_what_another_thread_got",),
        "The end of a delivery that was lost is not said of the next one, which has the same number.",
    ),
    Mutant(
        "shared/a-client-does-not-confirm",
        "client/consumer.py",
        "            link.post(pooled, queue.words(Confirm(worker, [held[0].fence])))\n",
        "            pass\n",
        (f"{UNSEEN}::test_a_job_that_a_handler_began_stays_when_its_connection_breaks",),
        "A job whose handler runs is not begun again when a connection breaks.",
    ),
    Mutant(
        "shared/a-dropped-job-is-not-told",
        KEEPER,
        "                tried(worked[0].ask, Drop(worked[1], [one.fence]))\n",
        "                pass\n",
        (f"{SHARED}::test_a_dropped_job_waits_for_the_end_of_its_lease",),
        "A dropped job waits for the end of its lease, and not for the end of its process.",
    ),
    Mutant(
        "shared/a-child-speaks-for-its-parent",
        LINK,
        "        if os.getpid() != self.pid:\n            self._forked()\n        with self._lock:\n"
        "            self._check_open()\n",
        "        with self._lock:\n            self._check_open()\n",
        (f"{OWNER}::test_a_child_of_a_fork_connects_anew",),
        "A child of a fork connects anew.",
    ),
)
