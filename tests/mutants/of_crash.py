"""Mutants of other lists that power cuts of recorded lives must find as well (`crash/`)."""

from __future__ import annotations

from typing import Final

from tests.mutants import of_checkpoint, of_log, of_recovery
from tests.mutants.mutant import Mutant

AROUND_A_SYNC: Final = "test_a_store_keeps_its_promises_around_a_sync"
CHECKPOINTS: Final = "test_checkpoint_segments_and_names_lose_power_together"

FOUND_BY: Final = {
    "log/no-fdatasync": AROUND_A_SYNC,
    "log/synced-takes-what-came-meanwhile": AROUND_A_SYNC,
    "log/durable-before-sync": AROUND_A_SYNC,
    "log/header-knows-its-own-lsn": AROUND_A_SYNC,
    "recipe/published-unsynced": AROUND_A_SYNC,
    "recipe/name-unsynced": AROUND_A_SYNC,
    "reader/body-unchecked": AROUND_A_SYNC,
    "reader/any-later-frame-is-proof": AROUND_A_SYNC,
    "checkpoint/commit-before-sync": CHECKPOINTS,
    "environment/unsynced": CHECKPOINTS,
    "environment/made-under-its-own-name": CHECKPOINTS,
    "checkpoints/sync-one-short": CHECKPOINTS,
    "checkpoints/released-before-commit": CHECKPOINTS,
}


def found_by_crashes(mutant: Mutant) -> Mutant:
    """The same mutant, with the check of power cuts that must catch it."""
    check = f"tests/crash/test_explore.py::{FOUND_BY[mutant.name]}"
    return mutant._replace(name=f"crash/{mutant.name.replace('/', '-')}", checks=(check,))


MUTANTS: Final = tuple(
    found_by_crashes(mutant)
    for mutant in (*of_log.MUTANTS, *of_recovery.MUTANTS, *of_checkpoint.MUTANTS)
    if mutant.name in FOUND_BY
)
assert len(MUTANTS) == len(FOUND_BY), "a mutant of FOUND_BY is in no list"
