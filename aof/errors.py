"""Errors of the append-only file, grouped by the moment they can occur.

At open: NotAStore, NewerFormat, NewerRecord, StoreLocked, DamagedFile, MissingSegment, CorruptFrame, DoesNotFit.
While reading beside a writer: Vanished (start again).
When frames of another store's log arrive: BadFrame, NewerFrame (nothing changed).
When a place in the log is looked up: Released, BeyondEnd, NoFrameEnds.
While writing: NoSpace, UnitTooLarge and NoThread (nothing changed), WrongRole (a mistake of the caller),
LogPoisoned (outcome unknown), LogClosed.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from tidelog.engine.effects.effect import END

RESTORE: Final = "tidelog snapshot restore SNAPSHOT NEW-DIRECTORY"  # the advice in error messages


class AofError(Exception):
    """Base of all errors of this folder."""


class NotAStore(AofError):
    """The directory is missing, empty, or holds something else. Name a store's directory, or an empty one to create
    a store."""

    def __init__(self, path: Path, reason: str, advice: str = "") -> None:
        advice = advice or (
            "Give the path of a store. To create a store, open a missing or empty directory for writing"
        )
        super().__init__(f"{path} is not a tidelog store: {reason}. {advice}")
        self.path = path


class NewerFormat(AofError):
    """A newer tidelog wrote the file. Open the store with that version or a later one."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{path} has format version {found}, but this tidelog reads only up to version {known}. Open it with the "
            "version that wrote it or a newer one"
        )
        self.path, self.found, self.known = path, found, known


class NewerRecord(NewerFormat):
    """The log has a record of a kind that this version does not know, and is readable otherwise."""

    def __init__(self, path: Path, offset: int, lsn: int, opcode: int) -> None:
        kind = opcode & ~END
        AofError.__init__(
            self,
            f"{path}, byte {offset}: the record with LSN {lsn} has kind {kind}, which only a newer tidelog knows. "
            "Open the store with the version that wrote it or a newer one",
        )
        self.path, self.found, self.offset, self.lsn = path, kind, offset, lsn


ELSEWHERE: Final = "which does not run here"


class StoreLocked(AofError):
    """Another process, or this one, has the store open for writing. `here`: it runs on this machine, in sight. `came`:
    what that process is, as far as its command line tells."""

    OWNER: Final = "an owner that a client started"
    SERVE: Final = "`tidelog serve`"

    def __init__(self, path: Path, pid: int | None, *, here: bool = True, came: str = "") -> None:
        holder = f"process {pid}" if pid is not None else "another process"
        if not here:
            holder += (
                f", {ELSEWHERE} but in another container, or on another machine if this is a network file "
                "system; that can use the store by the URL of a server only"
            )
        if came:
            holder += f", {came}"
        how = f"tidelog.connect({str(path.parent)!r}) (a queue by shared=True)"
        advice = {
            self.OWNER: f"Use it by {how}, open it read-only here, or run `tidelog serve`, which takes over; it ends a "
            "minute after its last client",
            self.SERVE: f"Use it by {how}, open it read-only here, or stop that server",
        }.get(
            came,
            f"Close it there, open it read-only here, or let several processes use it by {how}",
        )
        super().__init__(
            f"{path.parent} is open for writing by {holder} (it holds {path.name}). {advice}"
        )
        self.path, self.pid = path, pid


class Damage(AofError):
    """Promised data is no longer on the disk. The store does not open.

    The message ends with advice. The default is to restore a copy, or to run `repair`, which shows what would be
    lost before it changes anything. In a subclass's `advice`, "{repair}" stands for that command.
    """

    def __init__(self, path: Path, offset: int, reason: str, advice: str = "") -> None:
        repair = f"tidelog repair {shlex.quote(str(path.parent))}"
        advice = (
            advice
            or "Restore a backup, or see what a repair would lose (this changes nothing): {repair}"
        )
        super().__init__(f"{path}, byte {offset}: {reason}. {advice.format(repair=repair)}")
        self.path, self.offset, self.reason = path, offset, reason


class DamagedFile(Damage):
    """A file or header that is written whole and once (STORE, a segment's header) fails its check."""


class MissingSegment(Damage):
    """Records are missing between two segments, before the first, or after the last."""

    def __init__(
        self, path: Path, expected_lsn: int, found_lsn: int, reason: str, advice: str = ""
    ) -> None:
        self.what = reason
        reason = f"{reason} (LSN {expected_lsn} expected, {found_lsn or 'none'} found)"
        super().__init__(path, 0, reason, advice)
        self.expected_lsn, self.found_lsn = expected_lsn, found_lsn


class CorruptFrame(Damage):
    """A promised frame is damaged, does not decode, or does not follow the one before. Recovery stops; only a person
    may discard it."""

    def __init__(
        self, path: Path, offset: int, expected_lsn: int, found_lsn: int | None, reason: str
    ) -> None:
        found = "none" if found_lsn is None else str(found_lsn)
        super().__init__(path, offset, f"{reason} (LSN {expected_lsn} expected, {found} found)")
        self.expected_lsn, self.found_lsn = expected_lsn, found_lsn


class DoesNotFit(Damage):
    """The log does not continue the checkpoint: records between them are missing, or they have different histories.

    The operator must put back the files that belong together.
    """

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        advice = (
            "Put back an aof/ and a checkpoint/ that belong together, or restore a snapshot into another directory: "
            f"{RESTORE}"
        )
        super().__init__(path, offset, f"{reason}; the log does not fit the checkpoint", advice)


class Vanished(AofError):
    """The writer released a segment while this process read it. Start again at the newest checkpoint."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the writer deleted {path} while it was being read. Start again at the newest checkpoint"
        )
        self.path = path


class BadFrame(AofError):
    """Received bytes are not the frame that continues this log. Nothing of it was written.

    lsn   the LSN expected there
    """

    def __init__(self, lsn: int, reason: str) -> None:
        super().__init__(
            f"the received frame at LSN {lsn} is refused: {reason}. Nothing of it was written. If a new connection "
            "brings the same error, check the disk and the memory of both machines"
        )
        self.lsn, self.reason = lsn, reason


class NewerFrame(AofError):
    """A received frame has a record of a kind that this version does not know. Nothing of it was written."""

    def __init__(self, lsn: int, opcode: int) -> None:
        kind = opcode & ~END
        super().__init__(
            f"the received record with LSN {lsn} has kind {kind}: a newer tidelog wrote it. Nothing of it was written. "
            "Run the version that wrote it, or a newer one, on this machine"
        )
        self.lsn, self.found = lsn, kind


class Released(AofError):
    """The log no longer has the place: the segments that held it were released."""

    def __init__(self, directory: Path, lsn: int, first_lsn: int) -> None:
        super().__init__(
            f"{directory} begins with LSN {first_lsn}; the place behind LSN {lsn} was in a segment that was released. "
            "Start from a snapshot"
        )
        self.lsn, self.first_lsn = lsn, first_lsn


class BeyondEnd(AofError):
    """The log ends before the place."""

    def __init__(self, directory: Path, lsn: int, last_lsn: int) -> None:
        super().__init__(f"{directory} ends with LSN {last_lsn}, before LSN {lsn}")
        self.lsn, self.last_lsn = lsn, last_lsn


class NoFrameEnds(AofError):
    """The log has no frame that ends with this LSN and has this header checksum."""

    def __init__(self, directory: Path, lsn: int, crc: int) -> None:
        super().__init__(
            f"no frame of {directory} ends with LSN {lsn} and has the checksum {crc:08x}: the place belongs to another "
            "history"
        )
        self.lsn, self.crc = lsn, crc


class WrongRole(AofError):
    """The call does not fit the role of this open log. Nothing changed."""


class FollowerLog(WrongRole):
    """The log is a follower's: it takes only the frames of its leader's log."""

    def __init__(self) -> None:
        super().__init__(
            "this log belongs to a follower, which takes only the frames of its leader. Write to the leader, or "
            "promote this store first"
        )


class SuspendedLog(WrongRole):
    """The log of a leader that hands over to a follower: it takes nothing until that has ended."""

    def __init__(self) -> None:
        super().__init__(
            "this log is held while its store hands over to a follower. Try again when that has ended"
        )


class LeaderLog(WrongRole):
    """The log is a leader's: it takes no frames of another log."""

    def __init__(self) -> None:
        super().__init__(
            "this log belongs to a leader, which takes no frames of another store's log. Open it as a follower first"
        )


class NoSpace(AofError):
    """The disk or the quota is full. Nothing changed; the same write succeeds once there is space."""

    def __init__(self, path: Path, nbytes: int) -> None:
        super().__init__(
            f"{path}: the disk or the quota has no space for {nbytes} bytes; nothing was changed. Free some "
            "space and try again"
        )
        self.path, self.nbytes = path, nbytes


class NoThread(AofError):
    """The system refused to start a thread. Nothing changed; the same call succeeds once threads are available."""

    def __init__(self, purpose: str, reason: str) -> None:
        super().__init__(
            f"the system refused to start a thread to {purpose} ({reason}). Raise the limit on threads and processes "
            "(ulimit -u), or end some of them"
        )


class UnitTooLarge(AofError):
    """One command or transaction does not fit into the largest frame. Nothing changed."""

    def __init__(self, nbytes: int, nbytes_max: int) -> None:
        super().__init__(
            f"the call would write {nbytes} bytes to the log as one unit, but at most {nbytes_max} are possible; "
            "split it into several calls"
        )
        self.nbytes, self.nbytes_max = nbytes, nbytes_max


class LogClosed(AofError):
    """The log was closed."""


class LogPoisoned(AofError):
    """A write or an fsync failed. This open log acknowledges nothing any more.

    The outcome of calls that were waiting is unknown. Close the store and open it again: recovery reads what
    is on the disk.
    """
