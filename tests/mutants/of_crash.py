"""Mutants that the crash bench plants as well (crash/mutants.py), with the tests of the bench that must find them."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

from tidelog.crash.mutants import PLANTED

AROUND_A_SYNC: Final = "test_explore.py::test_a_store_keeps_its_promises_around_a_sync"
CHECKPOINTS: Final = "test_explore.py::test_checkpoint_segments_and_names_lose_power_together"
LOGS: Final = "test_logs.py::test_a_log_keeps_its_promises"
REPLIES: Final = "test_replies.py::test_what_a_client_has_read_stays"
QUEUES: Final = "test_queues.py::test_queues_keep_their_promises"
FOLLOWERS: Final = "test_followers.py::test_a_follower_keeps_what_it_confirmed"
ERRORS: Final = "test_injected.py::test_a_failed_sync_is_survived_in_memory"

FOUND_BY: Final = {
    "log/no-fdatasync": (LOGS, AROUND_A_SYNC),
    "log/synced-takes-what-came-meanwhile": (LOGS, AROUND_A_SYNC),
    "log/durable-before-sync": (LOGS, AROUND_A_SYNC),
    "log/header-knows-its-own-lsn": (LOGS, AROUND_A_SYNC),
    "recipe/published-unsynced": (LOGS, AROUND_A_SYNC),
    "recipe/name-unsynced": (LOGS, AROUND_A_SYNC),
    "reader/body-unchecked": (LOGS, AROUND_A_SYNC),
    "reader/any-later-frame-is-proof": (LOGS, AROUND_A_SYNC),
    "recovery/no-quarantine": (LOGS,),
    "checkpoint/commit-before-sync": (CHECKPOINTS,),
    "environment/unsynced": (CHECKPOINTS,),
    "environment/made-under-its-own-name": (CHECKPOINTS,),
    "checkpoints/sync-one-short": (CHECKPOINTS,),
    "checkpoints/released-before-commit": (CHECKPOINTS,),
    "promise/replies-before-sync": (REPLIES,),
    "wait/says-synced-when-written": (REPLIES,),
    "queue/done-and-in-two-units": (QUEUES,),
    "follower/confirms-before-sync": (FOLLOWERS,),
    "log/sync-tried-again": (ERRORS,),
    "recovery/keeps-page-cache": (ERRORS,),
}
assert FOUND_BY.keys() == {each.name for each in PLANTED}


def _found(name: str, check: str, number: int) -> Mutant:
    """A planted fault with one check of the bench that must catch it."""
    fault = next(each for each in PLANTED if each.name == name)
    return Mutant(
        f"crash{number or ''}/{name.replace('/', '-')}",
        fault.file,
        fault.anchor,
        fault.replacement,
        (f"tests/crash/{check}",),
        fault.promise,
    )


MUTANTS: Final = tuple(
    _found(name, check, number)
    for name, checks in FOUND_BY.items()
    for number, check in enumerate(checks)
)
