"""Swap: another store takes the place of the one in a directory, under the same LOCK. A power cut leaves one of both.

A follower does this with a restored copy of its leader's data. The new store lies whole and durable in resync/store/.

    1. Publish SWAP. From now on the directory is the new store, and the steps below can only be finished.
    2. Move aof/, checkpoint/ and STORE aside, each one followed by the new one of that name. If the old store is kept,
       its snapshots/ go aside first.
    3. Remove SWAP, then resync/.

Any open for writing finishes what was interrupted. Each step begins only when the one before is durable, and is skipped
if it was done: a new file or directory that is no longer in resync/store/ is in its place.

The old store is kept if it holds records that the new one lacks. Then it goes to quarantine/, where it is a store like
any other and can be opened. Else it goes to resync/old/, and is removed with it. REPLICA, LOCK and bookmarks/ stay.

    tidelog swap
    format 1
    uuid 0123456789abcdef0123456789abcdef      of the new store
    lsn 4711                                   with which its log begins: it holds a checkpoint of everything before
    aside quarantine/store.00000000000000000815.89abcdef01234567      or resync/old
    crc32c 89abcdef                            of the lines above, with their line feeds
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import identity, segment
from tidelog.aof.errors import Damage
from tidelog.aof.textfile import TextFile
from tidelog.disk import recipe
from tidelog.disk.interface import Disk

FORMAT: Final = 1
BYTES_MAX: Final = 64 << 10  # a longer file is damaged
NEW: Final = f"{identity.RESYNC}/store"
OLD: Final = f"{identity.RESYNC}/old"
WAIT_S = 5.0  # readers wait so long for the end of a swap: it moves a few names
POLL_S: Final = 0.005

_LINES: Final = (
    r"uuid ([0-9a-f]{32})\nlsn ([0-9]{1,20})\n"
    r"aside (resync/old|quarantine/store\.[0-9]{20}\.[0-9a-f]{16})\n"
)
_MOVED: Final = (identity.AOF, identity.CHECKPOINT, identity.NAME)  # STORE last
_ADVICE: Final = (
    "The old and the new store are in this directory, in resync/ and in quarantine/. Copy the directory, then move "
    "the file away and run: tidelog verify"
)
_TEXT: Final = TextFile(
    "tidelog swap",
    FORMAT,
    malformed="the file is incomplete or is not a SWAP file",
    advice=_ADVICE,
)


class Swap(NamedTuple):
    """The content of the file SWAP.

    uuid    of the new store
    lsn     the first one of its log
    aside   the directory that the old store goes to, relative to the store's
    """

    uuid: bytes
    lsn: int
    aside: str


def kept(last_lsn: int, token: int) -> str:
    """The directory for an old store that is kept: the last LSN of its log, and 64 random bits."""
    return f"{identity.QUARANTINE}/store.{last_lsn:020d}.{token:016x}"


def render(swap: Swap) -> bytes:
    return _TEXT.render(f"uuid {swap.uuid.hex()}\nlsn {swap.lsn}\naside {swap.aside}\n")


def parse(path: Path, data: bytes) -> Swap:
    """The content of a SWAP file. Raises Damage, NewerFormat."""
    lines = re.fullmatch(_LINES, _TEXT.parse(path, data))
    if lines is None:
        raise Damage(path, 0, "the lines do not describe a swap", _ADVICE)
    return Swap(bytes.fromhex(lines[1]), int(lines[2]), lines[3])


def pending(disk: Disk, root: Path) -> Swap | None:
    """The swap that has begun in the directory `root` and has not ended. Raises Damage, NewerFormat, OSError."""
    path = root / identity.SWAP
    if not disk.exists(path):
        return None
    try:
        return parse(path, recipe.read(disk, path, BYTES_MAX))
    except FileNotFoundError:  # its writer has just finished
        return None


def begin(disk: Disk, root: Path, swap: Swap) -> None:
    """Publish SWAP. The caller holds LOCK and has closed what it had open of the old store, or will.

    Raises Damage, NotAStore (there is no new store with this uuid), OSError (SWAP may be published or not).
    """
    found = identity.read(disk, root / NEW)
    if found != swap.uuid:
        raise Damage(
            root / NEW / identity.NAME,
            0,
            f"the store has the uuid {found.hex()}, and not {swap.uuid.hex()}",
            "Remove the directory resync/",
        )
    recipe.remove_tree(disk, root / OLD)
    # A power cut must not bring back what is in the way of the moves.
    disk.sync_directory(root / identity.RESYNC)
    recipe.publish(disk, root / identity.SWAP, render(swap))


def finish(disk: Disk, root: Path) -> bool:
    """Finish a swap that has begun. Returns whether there was one. The caller holds LOCK.

    Raises Damage, NewerFormat, OSError: the same call finishes it later.
    """
    swap = pending(disk, root)
    if swap is None:
        return False
    new, aside = root / NEW, root / swap.aside
    if disk.exists(new / identity.NAME):
        recipe.make_directory(disk, aside.parent)
        recipe.make_directory(disk, aside)
        # A process that makes a snapshot may have made a new folder meanwhile: that one stays.
        if swap.aside != OLD and not disk.exists(aside / identity.SNAPSHOTS):
            _move(disk, root / identity.SNAPSHOTS, aside)
    for name in _MOVED:
        if disk.exists(new / name):
            _move(disk, root / name, aside)
            recipe.move(disk, new / name, root / name)
    if identity.read(disk, root) != swap.uuid or not disk.exists(
        root / identity.AOF / segment.file_name(swap.lsn)
    ):
        raise Damage(root / identity.SWAP, 0, "the new store is not there", _ADVICE)
    recipe.remove(disk, root / identity.SWAP)
    clear(disk, root)
    return True


def _move(disk: Disk, path: Path, aside: Path) -> None:
    if disk.exists(path):
        recipe.move(disk, path, aside / path.name)


def clear(disk: Disk, root: Path) -> None:
    """Remove resync/, as far as the disk lets us: it is not needed. The caller holds LOCK, and no swap has begun."""
    with contextlib.suppress(OSError):
        if disk.exists(root / identity.RESYNC):
            recipe.remove_tree(disk, root / identity.RESYNC)
            disk.sync_directory(root)


def wait(disk: Disk, root: Path) -> None:
    """Wait while the writer of the store in `root` swaps it. For readers in other processes.

    Raises Damage, NewerFormat, OSError; Damage also if the swap was interrupted, and nobody finishes it.
    """
    until = time.monotonic() + WAIT_S
    while disk.exists(root / identity.SWAP):
        if time.monotonic() > until and pending(disk, root) is not None:
            raise Damage(
                root / identity.SWAP,
                0,
                "a copy of the leader's data was taking the place of this store, and was interrupted",
                "Nothing is lost. Open the store for writing: that finishes it",
            )
        time.sleep(POLL_S)
