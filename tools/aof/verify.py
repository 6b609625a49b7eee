"""`tidelog aof verify`: run every check of a log; each has its own line and exit code.

After a failed check it continues with all checks that still make sense. The exit code is the highest of the failed
checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from operator import length_hint
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgpack

from tidelog.aof import layout
from tidelog.aof.errors import (
    CorruptFrame,
    Damage,
    DamagedFile,
    MissingSegment,
    NewerFormat,
    NewerRecord,
)
from tidelog.aof.frame import Frame
from tidelog.aof.reading.reader import (
    DRAIN_BYTES,
    FrameTuple,
    Scan,
    is_end,
    records_of,
    unpacker,
)
from tidelog.aof.reading.verdicts import Verdict
from tidelog.disk.real import RealDisk
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import APPLY, is_known
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.state import State
from tidelog.engine.streams.block import rows_of
from tidelog.tools import console, exits
from tidelog.tools.aof import record_check
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, LogFiles, store_root
from tidelog.tools.replay import contents

# fmt: off
CHECKS: Final = {
    # name        exit code              what it means when it fails
    "tail":      exits.VERIFY_TAIL,     # a torn tail, as after a crash; no promised record is missing
    "durable":   exits.VERIFY_DURABLE,  # DURABLE is unreadable, so less can be proved; no data is missing
    "time":      exits.VERIFY_TIME,     # a frame is older than the one before it
    "records":   exits.VERIFY_RECORDS,  # a record is not an effect that this version knows
    "blocks":    exits.VERIFY_BLOCKS,   # sealed entries in a record do not match their checksum
    "replay":    exits.VERIFY_REPLAY,   # the records cannot be applied one after the other
    "frames":    exits.VERIFY_FRAMES,   # a frame that was promised is damaged
    "segments":  exits.VERIFY_SEGMENTS, # records are missing before, between or after segments
    "headers":   exits.VERIFY_HEADERS,  # a segment's header is damaged, or the segment is another store's
    "identity":  exits.VERIFY_IDENTITY, # the file STORE is damaged
    "files":     exits.VERIFY_FILES,    # a file has the wrong kind, so the store does not open
}
# fmt: on


LARGE: Final = 4 << 20
MANY: Final = frozenset((e.XADD_MANY, e.XADD_MANY | END))


class Failure(NamedTuple):
    """A check that failed, and where."""

    check: str
    text: str


class Verification:
    """Runs the checks and collects their findings."""

    def __init__(self, root: Path, *, with_replay: bool) -> None:
        self.root = root
        self.with_replay = with_replay
        self.failures: list[Failure] = []
        self.segments = self.frames = self.records = 0
        self.last_lsn = 0
        self.digest = ""
        self.state: State | None = State()
        # True if the first part of the log was released, so that the replay begins with the checkpoint.
        self.released = False
        self.now = 0

    def fail(self, check: str, text: str) -> None:
        self.failures.append(Failure(check, text))
        if check not in ("tail", "durable", "time"):
            self.state = None  # the replay would start from a wrong state

    def run(self) -> None:
        """All checks. Raises NotAStore, NewerFormat, OSError."""
        disk = RealDisk()
        for misplaced in layout.all_misplaced(disk, store_root(disk, self.root)):
            self.fail("files", str(misplaced))
        if self.failures:
            return
        try:
            files = LogFiles(self.root)
        except DamagedFile as error:
            return self.fail("identity", str(error))
        with files.still():
            self.check(files)

    def check(self, files: LogFiles) -> None:
        fault = files.durable_fault()
        if fault is not None:
            self.fail("durable", f"{fault.path}: {fault.reason}")
        try:
            with console.progress("verifying", files.size(), size=True) as advance:
                for scan in files.scans():
                    if not self.segments and scan.header.first_lsn != 1:
                        self.released = True
                    self.segments += 1
                    self.check_segment(scan)
                    advance(scan.size)
        except MissingSegment as error:
            self.fail("segments", str(error))
        except DamagedFile as error:
            self.fail("headers", str(error))
        if self.state is not None and self.with_replay:
            self.digest = (
                self.digest_over_checkpoint(files) if self.released else digest(self.state)
            )

    def digest_over_checkpoint(self, files: LogFiles) -> str:
        try:
            with contents(files) as found:
                return digest(found.state)
        except (NewerFormat, OSError):
            raise
        except Exception as error:  # as in `apply`
            self.fail("replay", f"{type(error).__name__}: {error}")
            return ""

    def check_segment(self, scan: Scan) -> None:
        stretch: list[FrameTuple] = []
        nbytes = 0
        for fields in scan.tuples():
            self.frames += 1
            offset, _, _, now, _, _, body = fields
            if now < self.now:
                text = (
                    f"{scan.path}, byte {offset}: the frame has the time {now}, which is before that of the previous "
                    f"frame, {self.now}"
                )
                self.fail("time", text)
            self.now = now
            stretch.append(fields)
            nbytes += len(body)
            if nbytes >= DRAIN_BYTES:
                self.check_frames(scan.path, stretch)
                stretch.clear()
                nbytes = 0
        self.check_frames(scan.path, stretch)
        self.last_lsn = scan.lsn - 1
        error: Damage | None = scan.error()
        if error is not None:
            self.fail("segments" if isinstance(error, MissingSegment) else "frames", str(error))
        elif scan.verdict is Verdict.TORN:
            text = (
                f"{scan.path}, byte {scan.offset}: the log ends with {scan.tail_bytes()} bytes of an unfinished write; "
                "the next open for writing moves them to quarantine/"
            )
            self.fail("tail", text)

    def check_frames(self, path: Path, frames: list[FrameTuple]) -> None:
        """Check the records of some frames: all at once, and if that is not enough to trust them, frame by frame."""
        # The quick way makes a copy of all values. One large frame is checked without it.
        records = decoded(frames) if sum(len(fields[6]) for fields in frames) < LARGE else None
        opcodes = None if records is None else record_check.opcodes_if_sound(records)
        if records is None or opcodes is None:
            for fields in frames:
                self.check_frame(path, Frame(*fields))
            return
        self.records += len(records)
        if not MANY.isdisjoint(opcodes):
            for at, effect in enumerate(records):
                if effect[0] in MANY:
                    offset, lsn = place_of(frames, at)
                    self.check_blocks(f"{path}, byte {offset}, LSN {lsn}", effect)
        self.apply_all(path, frames, records)

    def apply_all(self, path: Path, frames: list[FrameTuple], records: list[Effect]) -> None:
        state = self.state
        if state is None or not self.with_replay or self.released:
            return
        rest = iter(records)
        try:
            for effect in rest:
                APPLY[effect[0]](state, effect)
        except Exception as error:  # as in `apply`
            offset, lsn = place_of(frames, len(records) - length_hint(rest) - 1)
            place = f"{path}, byte {offset}, LSN {lsn}"
            self.fail("replay", f"{place}: {type(error).__name__}: {error}")

    def check_frame(self, path: Path, frame: Frame) -> None:
        place = f"{path}, byte {frame.offset}"
        try:
            effects = records_of(path, frame)
        except CorruptFrame as error:
            return self.fail("records", str(error))
        for lsn, effect in enumerate(effects, frame.lsn):
            self.records += 1
            if not is_known(effect[0]):
                self.fail("records", str(NewerRecord(path, frame.offset, lsn, effect[0])))
                continue
            fault = record_check.fault(effect)
            if fault:
                self.fail("records", f"{place}, LSN {lsn}: {fault}")
                continue
            if effect[0] & OPCODE == e.XADD_MANY:
                self.check_blocks(f"{place}, LSN {lsn}", effect)
            self.apply(f"{place}, LSN {lsn}", effect)

    def check_blocks(self, place: str, effect: Effect) -> None:
        for number, (count, sealed) in enumerate(effect[6]):
            try:
                found = len(rows_of(sealed))
            except CorruptBlock as error:
                self.fail("blocks", f"{place}, node {number}: {error}")
                continue
            if found != count:
                self.fail("blocks", f"{place}, node {number}: {found} entries instead of {count}")

    def apply(self, place: str, effect: Effect) -> None:
        if self.state is None or not self.with_replay or self.released:
            return
        try:
            APPLY[effect[0]](self.state, effect)
        except Exception as error:
            # Apply accepts every effect that decide makes, so any exception is a finding.
            self.fail("replay", f"{place}: {type(error).__name__}: {error}")


def decoded(frames: list[FrameTuple]) -> list[Effect] | None:
    """The records of some frames, if each frame has as many as it says and ends with the end of a unit; else None."""
    unpack = unpacker()
    for fields in frames:
        unpack.feed(fields[6])
    try:
        records: list[Effect] = list(unpack)
    except (ValueError, msgpack.UnpackException):
        return None
    fed = at = 0
    for _, _, count, _, _, _, body in frames:
        fed += len(body)
        at += count
        if at > len(records) or not is_end(records[at - 1]):
            return None
    return records if at == len(records) and unpack.tell() == fed else None


def place_of(frames: list[FrameTuple], at: int) -> tuple[int, int]:
    """(offset of its frame, LSN) of the record with this number among those of the frames."""
    lsn = frames[0][1] + at
    return max(fields[0] for fields in frames if fields[1] <= lsn), lsn


@tool_command(
    "tidelog aof verify orders-data; echo $?",
    "tidelog aof verify orders-data --json | jq .failures",
    codes=(*exits.READING, exits.VERIFY_TAIL),
)
@click.argument("path", type=STORE_PATH)
@json_option()
@click.option(
    "--no-replay",
    is_flag=True,
    help="Skip the replay, which needs as much memory as an open store.",
)
def command(path: Path, as_json: bool, no_replay: bool) -> int:
    verification = Verification(path, with_replay=not no_replay)
    verification.run()
    (show_json if as_json else show)(verification)
    return max((CHECKS[failure.check] for failure in verification.failures), default=exits.OK)


def table_of(checks: Iterable[str], failed: Iterable[str], made: Container[str]) -> None:
    """Print a table of the checks, the gravest first. `failed`: the check of each finding; `made`: not left out."""
    counts = Counter(failed)
    rows = []
    for check in reversed(list(checks)):
        result = "FAILED" if counts[check] else "ok" if check in made else "left out"
        rows.append((check, result, str(counts[check] or "")))
    console.table(("CHECK", "RESULT", "FINDINGS"), rows, right="FINDINGS")


def show(v: Verification) -> None:
    made = CHECKS if v.digest else CHECKS.keys() - {"replay"}
    table_of(CHECKS, (failure.check for failure in v.failures), made)
    for failure in v.failures:
        click.echo(f"{failure.check}: {failure.text}")
    click.echo(
        f"{v.records:,} records in {v.frames:,} frames, {v.segments} segments, last LSN {v.last_lsn}"
    )
    if v.digest:
        click.echo(f"digest {v.digest}")


def show_json(v: Verification) -> None:
    facts = {
        "failures": [failure._asdict() for failure in v.failures],
        "segments": v.segments,
        "frames": v.frames,
        "records": v.records,
        "last_lsn": v.last_lsn,
        "digest": v.digest or None,
    }
    console.json_object(facts)
