"""Recovery: rebuilds from the log a state that may be served. It may be interrupted at any point.

    1. fsync the last segment and drop its page cache, so that all that is read afterwards is on the disk.
       (Every earlier segment was fsynced before the next one got its name.)
    2. Scan all segments and apply their records. A verdict CORRUPT stops recovery, with nothing changed.
    3. If the tail is torn, copy it to quarantine/, then truncate the segment. Each step is fsynced before
       the next.
    4. Write to DURABLE, and fsync, that everything recovered is durable.

With a checkpoint, the scan starts where the checkpoint ends (aof/start.py). The first write of the new life
creates a new segment. If recovery is interrupted, the next one finds the same tail or none, and writes the
copy in quarantine/ again under the same name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import durable, identity, segment
from tidelog.aof.durable import DurableFile, Promise
from tidelog.aof.errors import RESTORE, DoesNotFit, MissingSegment, Vanished
from tidelog.aof.reading.reader import Epoch, Replay, Scan, Segment, segments
from tidelog.aof.reading.verdicts import Verdict
from tidelog.aof.segment import End, Position
from tidelog.aof.start import Start, beginning
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.engine.effects.effect import Effect

TORN: Final = ".torn"  # how the names of torn tails in quarantine/ end
_VANISHED_MAX = 100
_GAP_BYTES: Final = 1 << 20

_logger = logging.getLogger("tidelog")


class Recovered(NamedTuple):
    """The end of a recovered log, and a summary of its content.

    crc          header checksum of the last frame, the `prev` of the next one
    now          unix ms of the last frame
    epochs       every life since the first, in order
    end          the end of the last segment, for the header of the next one
    records      number of records applied
    quarantined  the file that holds the torn tail; None if the tail was not torn
    position     the position where the log ends
    read         (first LSN, offset after the last frame) of each segment that was read
    role         of the last segment
    """

    last_lsn: int
    crc: int
    now: int
    epochs: list[Epoch]
    end: End
    records: int
    quarantined: Path | None
    position: Position = Position(0, 0, 1, segment.HEADER_BYTES, 0)
    read: tuple[tuple[int, int], ...] = ()
    role: int = segment.LEADER


def recover(
    disk: Disk,
    root: Path,
    uuid: bytes,
    apply: Callable[[list[Effect]], object],
    start: Start | None = None,
) -> Recovered:
    """Recover the log of the store in `root` and prepare it for further writes. The caller holds LOCK.

    start   the checkpoint's statement about the log; None if there is no checkpoint

    `apply(records)` is called with the records of one or more whole frames, in order: all records, or those
    after `start`. Raises Damage (DoesNotFit if log and checkpoint do not belong together) or NewerFormat, with
    nothing changed on the disk; OSError; and the exceptions of `apply`.
    """
    directory = root / identity.AOF
    if start is None:
        found = segments(disk, directory, uuid)
    else:
        found, _ = beginning(disk, directory, uuid, start)
    if found:
        _settle(disk, directory, found[-1].path)
    else:
        # The store is new. Its creator may have died before it synced the names of the directories, so sync them now.
        disk.sync_directory(root.parent)
        disk.sync_directory(root)
    scan, replay = read_all(disk, directory, uuid, apply, start=start)
    if scan is None:
        return Recovered(0, 0, 0, [], End(0, 0, 0), 0, None)
    quarantined = None
    if scan.verdict is Verdict.TORN:
        quarantined = _quarantine(disk, root, scan)
    if scan.size > scan.offset:
        _cut(disk, scan)
    last_lsn = scan.lsn - 1
    _promise(disk, directory, uuid, Promise(scan.header.incarnation, last_lsn))
    # If the last segment has no frame, the next segment will replace it under the same name.
    empty = scan.offset == segment.HEADER_BYTES
    end = scan.header.before if empty else End(last_lsn, scan.offset, scan.crc)
    return Recovered(
        last_lsn,
        scan.crc,
        replay.now,
        replay.epochs,
        end,
        replay.records,
        quarantined,
        scan.position,
        tuple(replay.read),
        scan.header.role,
    )


def survey(
    disk: Disk, directory: Path, uuid: bytes, *, released: bool = False
) -> tuple[list[Promise], list[Segment]]:
    """The promises in DURABLE, and the segments. Raises Damage, NewerFormat, OSError.

    released   the oldest segments may be missing, since a checkpoint holds their records
    """
    # Read DURABLE before the list of segments. Then the list has the segment of every promised record, even if the
    # writer adds segments meanwhile.
    promises = durable.read(disk, directory, uuid)
    found = segments(disk, directory, uuid)
    check_emptied(disk, directory, found)
    if found and found[0].header.first_lsn != 1 and not released:
        checkpoint = directory.parent / identity.CHECKPOINT / identity.DATA
        raise MissingSegment(
            found[0].path,
            1,
            found[0].header.first_lsn,
            f"the segments before this one are missing, and so is {checkpoint}, which would hold their records",
            f"Put back the missing files, or restore a snapshot into another directory: {RESTORE}. To list what is "
            "left: {repair}",
        )
    return promises, found


def read_all(
    disk: Disk,
    directory: Path,
    uuid: bytes,
    apply: Callable[[list[Effect]], object],
    *,
    live: bool = False,
    start: Start | None = None,
) -> tuple[Scan | None, Replay]:
    """Apply all records of the log in `directory`, or those after `start`, and change nothing on the disk.

    live   a writer is running: it may be in the middle of a frame, and may release segments. Then this raises
           Vanished, or DoesNotFit if a newer checkpoint was made since `start` was read

    Returns the finished scan of the last segment, None if there is no segment, and the Replay, which also has
    the lives and the time of `start`. Raises Damage, NewerFormat, Vanished, OSError.
    """
    at: Position | None = None
    if start is None:
        promises, found = survey(disk, directory, uuid)
    else:
        promises = durable.read(disk, directory, uuid)  # first, as in `survey`
        found, at = beginning(disk, directory, uuid, start)
        check_emptied(disk, directory, found)
    replay = Replay(apply)
    if start is not None:
        replay.epochs += start.epochs
        replay.now = start.now
    scan: Scan | None = None
    for info in found:
        try:
            scan = Scan(disk, info, promises, live=live, start=at)
        except FileNotFoundError:
            raise Vanished(info.path) from None
        at = None
        replay.run(info.path, scan.tuples())
        error = scan.error()
        if error is not None:
            raise error
        replay.now = scan.now or replay.now
        replay.read.append((info.header.first_lsn, scan.offset))
    check_lives(directory, promises, found, scan)
    return scan, replay


def read_beside(
    disk: Disk,
    directory: Path,
    uuid: bytes,
    begin: Callable[[], tuple[Start | None, Callable[[list[Effect]], object]]],
) -> tuple[Scan | None, Replay]:
    """`read_all` beside a writer that makes checkpoints and releases segments.

    begin   opens the newest checkpoint and returns its Start and a function that applies records to it. It is
            called again if the writer released segments before or during the read

    Raises Damage if the log does not fit the newest checkpoint either, and Vanished if segments vanish again and
    again without a newer checkpoint.
    """
    start, apply = begin()
    vanished = 0
    while True:
        try:
            return read_all(disk, directory, uuid, apply, live=True, start=start)
        except (Vanished, MissingSegment, DoesNotFit) as error:
            newest, apply = begin()
            # After a Vanished, try again even if the checkpoint is still the same. The writer may release a segment
            # that ends exactly at the checkpoint, and needs no newer checkpoint for that.
            vanished += isinstance(error, Vanished)
            if newest == start and not (isinstance(error, Vanished) and vanished < _VANISHED_MAX):
                raise
            start = newest


def check_emptied(disk: Disk, directory: Path, found: list[Segment]) -> None:
    """Raise MissingSegment if aof/ was emptied: a store that was never written to has DURABLE, but no segment."""
    if not found and not disk.exists(directory / durable.NAME):
        raise MissingSegment(
            directory / segment.file_name(1), 1, 0, "all segments and the file DURABLE are missing"
        )


def check_lives(
    directory: Path, promises: list[Promise], found: list[Segment], scan: Scan | None
) -> None:
    """Raise MissingSegment if DURABLE has a promise of a life that has no segment: its records are lost.

    `scan` is the finished scan of the last segment. Promises of LSNs that the log still has are ignored.
    """
    lives = {info.header.incarnation for info in found}
    next_lsn = 1 if scan is None else scan.lsn
    for promise in promises:
        if promise.incarnation not in lives and promise.lsn >= next_lsn:
            raise MissingSegment(
                directory / segment.file_name(next_lsn),
                promise.lsn,
                next_lsn - 1,
                f"the file DURABLE proves that records through LSN {promise.lsn} existed, but the segment that held "
                "the last of them is missing",
            )


def _settle(disk: Disk, directory: Path, path: Path) -> None:
    """Make the page cache of the last segment, and the file names, agree with the disk."""
    file = disk.open(path, write=True)
    try:
        file.fsync()
        # An earlier fsync may have failed. The kernel then marked the pages clean although the disk differs from them.
        # So drop them, and read from the disk.
        file.drop_cache()
    finally:
        file.close()
    disk.sync_directory(directory)


def _quarantine(disk: Disk, root: Path, scan: Scan) -> Path:
    nbytes = scan.tail_bytes()
    directory = root / identity.QUARANTINE
    recipe.make_directory(disk, directory)
    # The file's name has the incarnation, because the next life reuses the name of an empty segment.
    base = f"{scan.path.stem}.{scan.header.incarnation:016x}.{scan.offset}"
    # A recovery that lost power before its cut was durable has left a copy. The disk can show other bytes now, and then
    # neither copy may replace the other.
    for number in count(1):
        name = f"{base}{TORN}" if number == 1 else f"{base}.{number}{TORN}"
        if not disk.exists(directory / name):
            recipe.publish_pieces(disk, directory / name, nbytes, scan.tail())
            break
        if _is_copy(disk, directory / name, nbytes, scan.tail()):
            disk.sync_directory(directory)
            break
    _logger.warning(
        "%s, byte %d: the log ended with an unfinished write of %d bytes, which was never acknowledged as durable and "
        "was moved to %s; the log now ends with LSN %d",
        scan.path,
        scan.offset,
        nbytes,
        directory / name,
        scan.lsn - 1,
    )
    return directory / name


def _is_copy(disk: Disk, path: Path, nbytes: int, pieces: Iterable[tuple[int, bytes]]) -> bool:
    """Whether a file has these `nbytes` bytes, given as (offset, bytes) pieces with zeros between them."""
    file = disk.open(path)
    try:
        if file.size() != nbytes:
            return False
        at = 0
        for offset, piece in (*pieces, (nbytes, b"")):
            while at < offset:
                gap = file.pread(min(_GAP_BYTES, offset - at), at)
                if gap.strip(b"\0"):
                    return False
                at += len(gap)
            piece = piece[: nbytes - offset]
            if file.pread(len(piece), offset) != piece:
                return False
            at = offset + len(piece)
        return True
    finally:
        file.close()


def _cut(disk: Disk, scan: Scan) -> None:
    file = disk.open(scan.path, write=True)
    try:
        file.truncate(scan.offset)
        file.fsync()
    finally:
        file.close()


def _promise(disk: Disk, directory: Path, uuid: bytes, promise: Promise) -> None:
    stated = promise in durable.read(disk, directory, uuid)
    slots = DurableFile(disk, directory, uuid)
    try:
        if not stated:
            slots.write(*promise)
        # Sync even if the file already has the promise: the previous writer may have written it without a sync.
        slots.sync()
    finally:
        slots.close()
