"""Mutants that were planted before their author had read any check. The checks existed; none was written for them."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

MUTANTS: Final = (
    Mutant(
        "strangers/a-unit-at-the-bound",
        "snapshot/tail.py",
        "if record[0] & END and lsn <= place.bound.lsn",
        "if record[0] & END and lsn < place.bound.lsn",
        ("tests/snapshot/portable/test_restore_tail.py::test_every_lsn",),
        "A restore ends with the unit whose last record has the LSN asked for.",
    ),
    Mutant(
        "strangers/group-numbers-repeat",
        "engine/effects/apply_groups.py",
        "    stream.next_group += 1\n",
        "",
        ("tests/engine/test_one_change.py::test_after_a_checkpoint",),
        "Two groups of a stream never have the same number, which names their rows in a checkpoint.",
    ),
    Mutant(
        "strangers/one-follower-is-enough",
        "store/acks.py",
        "return found[wanted - 1] if",
        "return found[0] if",
        ("tests/replication/test_replicated.py::test_the_slowest_of_those_wanted_counts",),
        "A call that waits for two followers is not confirmed by one.",
    ),
    Mutant(
        "strangers/a-slice-ends-early",
        "jobs/work/limits.py",
        "        end = step + rate.period\n",
        "        end = rate.period\n",
        ("tests/jobs/test_limits.py::test_a_rate_holds_in_every_period",),
        "A slice of a rate counts until a whole period has passed since its end.",
    ),
    Mutant(
        "strangers/an-unseen-delivery-counts",
        "jobs/work/ends.py",
        "less = tuple(max(counts[job] - 1, 0) for job in back)",
        "less = tuple(counts[job] for job in back)",
        (
            "tests/jobs/test_queue.py::"
            "test_a_consumer_that_could_not_be_closed_is_closed_by_the_next_beat",
        ),
        "A delivery that no worker saw does not count.",
    ),
    Mutant(
        "strangers/checkpoints-share-a-number",
        "store/checkpoints.py",
        "number=1 if self.meta is None else self.meta.number + 1",
        "number=1 if self.meta is None else self.meta.number",
        (
            "tests/store/checkpoint/test_checkpoint_rebuilt.py::"
            "test_memory_that_is_rebuilt_right_before_a_commit_is_rebuilt_again",
        ),
        "Memory that was rebuilt from an older checkpoint is known by its number.",
    ),
)
