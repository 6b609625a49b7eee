"""Recovery: from what lies on the disk to a state that may be served. Safe to interrupt anywhere.

Where a checkpoint holds what came before, it is read from there on (aof/start.py), and otherwise the same.

    1. fsync the last segment, and forget the page cache: what is read from here on is on the disk.
       (Every segment before it was fsynced before the next one got its name.)
    2. Scan all segments, applying their records. A verdict CORRUPT ends it, with nothing changed.
    3. A torn tail: copy it to quarantine/, then truncate the segment, each fsynced before the next.
    4. State in DURABLE, fsynced, that all that was recovered is durable.

The new segment follows at the first write. Interrupted, the next recovery finds the same tail again, or
none; the copy in quarantine is then written again under the same name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidelog.aof import durable, identity, segment
from tidelog.aof.durable import DurableFile, Promise
from tidelog.aof.errors import RESTORE, DoesNotFit, MissingSegment, Vanished
from tidelog.aof.reader import Epoch, Replay, Scan, Segment, segments
from tidelog.aof.segment import End, Position
from tidelog.aof.start import Start, beginning
from tidelog.aof.verdicts import Verdict
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.engine.effects import Effect

_VANISHED_MAX = 100

_logger = logging.getLogger("tidelog")


class Recovered(NamedTuple):
    """Where a log ends, and what it held.

    crc          header checksum of the last frame, which the next one continues
    now          unix ms of the last frame
    epochs       every life since the first, in order
    end          where the segment to come says that the one before it ended
    records      how many were applied
    quarantined  the file that holds the torn tail that was taken out, if there was one
    position     the place where it ends
    read         (first LSN, offset after the last frame) of each segment that was read
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


def recover(
    disk: Disk,
    root: Path,
    uuid: bytes,
    apply: Callable[[list[Effect]], object],
    start: Start | None = None,
) -> Recovered:
    """Recover the log of the store in `root`, whose LOCK is held, and make it ready to be continued.

    start   what the checkpoint says that the store has; None if it has none

    `apply(records)` is called with the records of one or more whole frames, in order: all, or those behind
    `start`. Raises Damage (DoesNotFit where log and checkpoint do not belong together) or NewerFormat, with
    nothing changed on the disk; OSError; and what `apply` raises.
    """
    directory = root / identity.AOF
    if start is None:
        found = segments(disk, directory, uuid)
    else:
        found, _ = beginning(disk, directory, uuid, start)
    if found:
        _settle(disk, directory, found[-1].path)
    else:
        # A store that was only just created, perhaps by a process that died before it synced names.
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
    # A segment without a frame is replaced by the next one, which gets the same name.
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
    )


def survey(
    disk: Disk, directory: Path, uuid: bytes, *, released: bool = False
) -> tuple[list[Promise], list[Segment]]:
    """What was promised, and the segments there are. Raises Damage, NewerFormat, OSError.

    released   the first segments may have been released, since a checkpoint holds what was in them
    """
    # In this order: whatever was promised before the segments were listed is in one of them.
    promises = durable.read(disk, directory, uuid)
    found = segments(disk, directory, uuid)
    check_emptied(disk, directory, found)
    if found and found[0].header.first_lsn != 1 and not released:
        checkpoint = directory.parent / identity.CHECKPOINT / identity.DATA
        raise MissingSegment(
            found[0].path,
            1,
            found[0].header.first_lsn,
            f"segments before the first are missing, and {checkpoint}, which would hold their records, is too",
            f"Put back what is missing, or restore a snapshot into another directory: {RESTORE}. To see what is "
            "there: {repair}",
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
    """Apply all records of the log in `directory`, or those behind `start`, changing nothing on the disk.

    live   beside a writer, who may be in the middle of a frame, and may release segments: then Vanished is
           raised, or DoesNotFit if a newer checkpoint was made since `start` was read

    Returns the finished scan of the last segment, None if there is none; the lives and the time that `start`
    tells of are in the Replay as if they had been read. Raises Damage.
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

    begin   opens the newest checkpoint and returns what it says, and what applies records onto it. It is called
            again when segments were released between that and the reading, or while it was going on

    Raises Damage if the newest checkpoint does not fit either.
    """
    start, apply = begin()
    vanished = 0
    while True:
        try:
            return read_all(disk, directory, uuid, apply, live=True, start=start)
        except (Vanished, MissingSegment, DoesNotFit) as error:
            newest, apply = begin()
            # A segment that ended with the checkpoint may go also without a newer one.
            vanished += isinstance(error, Vanished)
            if newest == start and not (isinstance(error, Vanished) and vanished < _VANISHED_MAX):
                raise
            start = newest


def check_emptied(disk: Disk, directory: Path, found: list[Segment]) -> None:
    """A store that was never written to has no segment, but DURABLE. Raises MissingSegment."""
    if not found and not disk.exists(directory / durable.NAME):
        raise MissingSegment(
            directory / segment.file_name(1), 1, 0, "all segments are missing, and DURABLE too"
        )


def check_lives(
    directory: Path, promises: list[Promise], found: list[Segment], scan: Scan | None
) -> None:
    """A life that made a promise had a segment. If there is none, its records are gone with it.

    `scan` is the finished scan of the last segment. Raises MissingSegment.
    """
    lives = {info.header.incarnation for info in found}
    next_lsn = 1 if scan is None else scan.lsn
    for promise in promises:
        if promise.incarnation not in lives and promise.lsn >= next_lsn:
            raise MissingSegment(
                directory / segment.file_name(next_lsn),
                promise.lsn,
                next_lsn - 1,
                "DURABLE proves records of a life whose segment is missing",
            )


def _settle(disk: Disk, directory: Path, path: Path) -> None:
    """Have the disk and the page cache agree about the last segment, and about the names."""
    file = disk.open(path, write=True)
    try:
        file.fsync()
        # Pages that an earlier, failed fsync gave up are clean now and differ from the disk.
        file.drop_cache()
    finally:
        file.close()
    disk.sync_directory(directory)


def _quarantine(disk: Disk, root: Path, scan: Scan) -> Path:
    nbytes = scan.tail_bytes()
    directory = root / identity.QUARANTINE
    recipe.make_directory(disk, directory)
    # The incarnation is in the name because an empty segment's name is used again by the next life.
    name = f"{scan.path.stem}.{scan.header.incarnation:016x}.{scan.offset}.torn"
    recipe.publish_pieces(disk, directory / name, nbytes, scan.tail())
    _logger.warning(
        "%s, byte %d: a torn tail of %d bytes, never acknowledged as durable, was moved to %s; "
        "the log ends with LSN %d",
        scan.path,
        scan.offset,
        nbytes,
        directory / name,
        scan.lsn - 1,
    )
    return directory / name


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
        # Also one that stands there: the life before wrote it without a sync, so only the page cache may have it.
        slots.sync()
    finally:
        slots.close()
