"""The table of evidence in DURABILITY.md: each promise by fault and policy, and how often the bench tried it.

The numbers are those of counts.json, added up over all shares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tests.crash.counts import Counts
from tests.turns import SHARES

from tidelog.crash.calls import CALLS
from tidelog.crash.followers import FOLLOWERS
from tidelog.crash.full import FULL
from tidelog.crash.injected import ERRORS
from tidelog.crash.killed import KILL
from tidelog.crash.logs import LOG
from tidelog.crash.queues import QUEUES
from tidelog.crash.replies import REPLIES
from tidelog.crash.rot import ROT
from tidelog.crash.run import CHECKPOINTS, DOUBLE, STORE
from tidelog.crash.servers import SERVERS
from tidelog.crash.small import SMALL
from tidelog.crash.workloads import POLICIES
from tidelog.tools.crash.blocks import BLOCKS, XFS_BLOCKS
from tidelog.tools.crash.shutdowns import MACHINE, XFS

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "DURABILITY.md"
BEGIN: Final = "<!-- The table is made by `make crash CRASH='--share all --accept'`. -->\n\n"
END: Final = "\n<!-- end of the table -->"


class Promise(NamedTuple):
    """One row: the fault, the layer that tries it, and the promise under each policy.

    A fault that no layer tries by itself has "" or the layers that try it too, in words, and the tests that do.
    """

    fault: str
    layer: str
    always: str
    everysec: str
    no: str
    tests: tuple[str, ...] = ()


CONFIRMED: Final = "everything that it confirmed as `fsynced` is there, of the rest a prefix"
ALWAYS: Final = "everything acknowledged is there"
SYNCED: Final = "everything `fsynced` is there, of the rest a prefix"
SERVED: Final = "everything that the recovery served is there"
KILLED: Final = ALWAYS
TOLD: Final = "every call is right or raises; everything acknowledged at its level is there"
NO_ROOM: Final = "a write raises and changes nothing; everything acknowledged is there"
JUMPS: Final = "IDs grow, and the promise of a power cut holds"
WHOLE: Final = "the snapshot is whole or not there"
RESTORED: Final = "the restored store is whole, or says that it is unfinished"
RIGHT: Final = "every answer is right or an error, and nothing else is deleted"

PROMISES: Final = (
    Promise("power cut of the log alone", LOG, ALWAYS, SYNCED, SYNCED),
    Promise("power cut, all data in the log", STORE, ALWAYS, SYNCED, SYNCED),
    Promise("power cut, all sequences of three operations", SMALL, ALWAYS, SYNCED, SYNCED),
    Promise("power cut, with checkpoints", CHECKPOINTS, ALWAYS, SYNCED, SYNCED),
    Promise("power cut during the recovery, and after it", DOUBLE, SERVED, SERVED, SERVED),
    Promise("power cut of a real ext4, with checkpoints", MACHINE, ALWAYS, SYNCED, SYNCED),
    Promise("power cut of a real xfs, with checkpoints", XFS, ALWAYS, SYNCED, SYNCED),
    Promise("power cut of the disk below a real ext4", BLOCKS, ALWAYS, SYNCED, SYNCED),
    Promise("power cut of the disk below a real xfs", XFS_BLOCKS, ALWAYS, SYNCED, SYNCED),
    Promise("power cut of a server: what clients had read", REPLIES, ALWAYS, SYNCED, SYNCED),
    Promise("power cut, jobs of queues", QUEUES, ALWAYS, SYNCED, SYNCED),
    Promise("power cut of a follower", FOLLOWERS, CONFIRMED, CONFIRMED, CONFIRMED),
    Promise("`kill -9`", KILL, KILLED, KILLED, KILLED),
    Promise("`kill -9` of a server under load", SERVERS, KILLED, KILLED, KILLED),
    Promise("an operation of the disk fails", ERRORS, TOLD, TOLD, TOLD),
    Promise("a system call fails, also one of LMDB", CALLS, TOLD, TOLD, TOLD),
    Promise("one damage to a file", ROT, RIGHT, RIGHT, RIGHT),
    Promise("a full disk, with checkpoints", FULL, NO_ROOM, NO_ROOM, NO_ROOM),
    Promise("a full disk of a server", f"`{ERRORS}` has ENOSPC and EDQUOT", NO_ROOM, NO_ROOM, NO_ROOM, (
        "tests/server/durability/test_full_disk.py::test_on_a_small_file_system",
    )),
    Promise("the wall clock jumps", f"`{STORE}` has it in every fourth workload", JUMPS, JUMPS, JUMPS, (
        "tests/crash/test_clocks.py::test_a_store_whose_clock_jumps_keeps_its_promises",
    )),
    Promise("power cut while a snapshot is made", "", WHOLE, WHOLE, WHOLE, (
        "tests/snapshot/portable/test_portable_power_loss.py::test_power_loss_while_one_is_made",
    )),
    Promise("power cut while a snapshot is restored", "", RESTORED, RESTORED, RESTORED, (
        "tests/snapshot/portable/test_restore_power_loss.py::test_power_loss_at_every_operation",
    )),
)  # fmt: skip


def table(counts: dict[int, Counts]) -> str:
    """The table in Markdown."""
    rows = [
        ["fault", "layer", *(f"`{policy}`" for policy in POLICIES)],
        ["---", "---", *("---" for _ in POLICIES)],
    ]
    for promise in PROMISES:
        cells = [getattr(promise, policy) for policy in POLICIES]
        by = f"`{promise.layer}`"
        if promise.tests:
            files = dict.fromkeys(f"`{test.partition('::')[0]}`" for test in promise.tests)
            by = "; ".join(filter(None, [promise.layer, ", ".join(files)]))
        else:
            counted = [_tried(counts, policy, promise.layer) for policy in POLICIES]
            cells = [f"{cell}: {number:,}" for cell, number in zip(cells, counted, strict=True)]
        rows.append([promise.fault, by, *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _tried(counts: dict[int, Counts], policy: str, layer: str) -> int:
    """How many different disks, damages, errors or kills of all shares."""
    # A layer that is new is not yet in the shares that are accepted later.
    shares = [counts[share][policy].get(layer, {}) for share in range(1, SHARES + 1)]
    return sum(share.get("distinct", 0) for share in shares)


def renewed(text: str, counts: dict[int, Counts]) -> str:
    """The text of the document with the table of these counts."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{table(counts)}{END}{tail}"


def write(counts: dict[int, Counts]) -> None:
    """Put the table into the document."""
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(), counts))
