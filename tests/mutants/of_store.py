"""Mutants of the store, the queue and the server: units, promises of replies, fences."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, planted

MUTANTS: Final = (
    Mutant(
        "residence/evicts-during-a-checkpoint",
        "store/residence.py",
        "            if changes.frozen is not None or core.trouble is not None:\n",
        "            if core.trouble is not None:\n",
        (
            "tests/store/checkpoint/test_checkpoint_memory.py::test_nothing_leaves_while_a_checkpoint_is_written",
        ),
        "Only data that a checkpoint holds leaves memory.",
    ),
    Mutant(
        "landing/applied-before-room",
        "store/commit/landing.py",
        "        if log.offset + size > log.room and count:  # inlined `reserve`, saves a call\n"
        "            self.reserve(size, effects)\n",
        "        if count and log.offset + size > log.room:\n"
        "            for effect in effects:\n                APPLY[effect[0]](state, effect)\n"
        "            self.reserve(size, effects)\n            effects = ()\n",
        ("tests/store/faults/test_poison.py::test_a_full_disk_refuses_writes_until_there_is_room",),
        "A full disk is the error of a command that changed nothing.",
    ),
    Mutant(
        "landing/every-record-ends-a-unit",
        "store/commit/landing.py",
        "        for effect in logged:\n            pack(effect)\n",
        "        for effect in logged:\n            pack((effect[0] | END, *effect[1:]))\n",
        ("tests/store/test_units.py::test_a_command_of_several_effects_is_one_unit",),
        "A unit survives whole or not at all: only its last record ends it.",
    ),
    Mutant(
        "gathering/no-record-ends-the-unit",
        "store/commit/gathering.py",
        "    marked[at + 1] |= END\n",
        "    marked[at + 1] |= 0\n",
        ("tests/store/test_units.py",),
        "The last record of an EXEC ends its unit.",
    ),
    Mutant(
        "promise/reads-do-not-wait",
        "store/commit/durability.py",
        "        if self.fulfilled(promise, level):\n",
        "        if self.fulfilled(promise, level) or not promise[2]:\n",
        (
            "tests/store/faults/test_accidents_between_calls.py::test_an_error_waits_for_what_it_tells_of",
        ),
        "A read is answered when what it shows holds the caller's level.",
    ),
    planted(
        "promise/replies-before-sync",
        "tests/server/durability/test_power_loss.py::test_what_was_answered_is_on_the_disk",
    ),
    Mutant(
        "promise/replies-though-parked",
        "store/commit/durability.py",
        "            return 0 if log.parked else log.written_lsn\n",
        "            return log.written_lsn\n",
        (
            "tests/store/test_promise.py::test_while_the_log_is_parked_only_what_is_on_the_disk_holds",
        ),
        "While replies are parked, none leaves that is not on the disk.",
    ),
    Mutant(
        "landing/no-rebuild-after-broken-unit",
        "store/commit/landing.py",
        "        self.trouble = RELOAD\n        text = what or",
        "        text = what or",
        ("tests/store/faults/test_broken_calls.py::test_raising_at_every_line",),
        "After a unit that broke off memory is rebuilt from the log.",
    ),
    Mutant(
        "landing/watchers-untold-of-rebuild",
        "store/commit/landing.py",
        "        self.watches.touch(list(self.watches.keys))\n"
        "        self.waiting.signal(list(self.waiting.keys))\n",
        "        self.waiting.signal(list(self.waiting.keys))\n",
        (
            "tests/store/faults/test_broken_calls.py::test_a_watched_key_counts_as_changed_by_a_rebuild",
        ),
        "A watched key counts as changed when memory was rebuilt.",
    ),
    Mutant(
        "landing/queues-untold-of-rebuild",
        "store/commit/landing.py",
        "        for told in self.rebuilt:\n            told()\n",
        "",
        ("tests/jobs/test_queue_short.py",),
        "A queue reads its records again after memory was rebuilt.",
    ),
    Mutant(
        "queue/ack-without-fence",
        "jobs/work/settle.py",
        "    if stream is None or group is None or not holds(group, delivery.worker, job, count):\n",
        "    if stream is None or group is None:\n",
        (
            "tests/jobs/test_queue_leases.py::test_after_its_time_limit_a_lease_is_not_renewed",
            "tests/jobs/test_queue_leases.py::test_a_namesake_waits_for_the_lease_of_a_job_beyond_its_time_limit",
        ),
        "A worker that lost its lease acknowledges nothing.",
    ),
    Mutant(
        "queue/settle-without-fence",
        "jobs/work/settle.py",
        "        if stream is None or group is None or not holds(group, self.worker, self.job, self.count):\n",
        "        if stream is None or group is None:\n",
        (
            "tests/jobs/test_queue.py::test_done_and_of_a_lost_job_puts_nothing",
            "tests/jobs/test_queue.py::test_a_job_that_was_lost_is_left_alone",
        ),
        "A worker that lost its lease settles nothing.",
    ),
    Mutant(
        "queue/release-counts-delivery",
        "jobs/work/settle.py",
        'b"SILENT"',
        'b"FAIL"',
        (
            "tests/jobs/test_queue.py::test_release_gives_a_job_back_as_if_it_had_not_been_delivered",
        ),
        "A job that is given back is as if it had never been delivered.",
    ),
    Mutant(
        "queue/one-delivery-too-many",
        "jobs/options.py",
        "        if deliveries >= self.most(own):\n",
        "        if deliveries > self.most(own):\n",
        ("tests/jobs/test_queue.py::test_after_its_last_delivery_a_failing_job_is_dead",),
        "A job is given up after max_deliveries.",
    ),
    planted("queue/done-and-in-two-units", "tests/store/test_units.py::test_done_and_is_one_unit"),
    Mutant(
        "queue/beat-forgets-finished",
        "jobs/work/leases.py",
        "            delivery.finished.extendleft(reversed(jobs))\n",
        "            pass\n",
        (
            "tests/store/test_units.py::test_acknowledgements_that_were_gathered_outlive_a_full_disk",
        ),
        "Acknowledgements whose beat failed are written by the next one.",
    ),
    Mutant(
        "queue/leases-not-renewed",
        "jobs/work/leases.py",
        "            if due and delivery.lives(mono):\n",
        "            if False:\n",
        (
            "tests/jobs/test_queue_leases.py::test_the_lease_of_a_job_in_hand_is_renewed_three_times_over",
        ),
        "The leases of living workers are renewed.",
    ),
)
