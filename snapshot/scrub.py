"""Scrub: check everything about a store on the disk. It may run beside the store's writer.

    check        finding
    identity     STORE is damaged or missing
    checkpoint   rows of the checkpoint fail their checksums, are missing, or are inconsistent
    headers      a segment's header is damaged, or the segment belongs to another store
    segments     records are missing between, before or after segments
    frames       a frame that was promised is damaged
    records      the records of a whole frame do not decode, or this version does not know them
    blocks       a sealed block inside a record does not match its checksum
    agreement    the log does not continue the checkpoint
    snapshot     a kept snapshot is damaged
    durable      aof/DURABLE cannot be read: proof is weaker, no data is missing
    time         a frame is older than the one before it
    tail         a torn tail: ordinary after a crash, nothing promised is missing
    files        a link, a directory or a special file lies in a file's place: the store does not open

Nothing is written or created. A snapshot is held by a lease while it is checked, so that no prune deletes it. A child
process walks LMDB files, because a damaged one can kill the process that maps it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import durable, identity, layout
from tidelog.aof.durable import Promise
from tidelog.aof.errors import (
    CorruptFrame,
    Damage,
    DamagedFile,
    DoesNotFit,
    MissingSegment,
    NewerRecord,
    Vanished,
)
from tidelog.aof.frame import Frame
from tidelog.aof.identity import CHECKPOINT, DATA, SNAPSHOTS
from tidelog.aof.reading import recovery
from tidelog.aof.reading.reader import Scan, Segment, records_of
from tidelog.aof.reading.verdicts import Verdict
from tidelog.aof.start import Start, beginning
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.still import stilled
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import is_known
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.streams.block import rows_of
from tidelog.snapshot.content import miscounted
from tidelog.snapshot.errors import CheckpointError, SnapshotDamaged, SnapshotGone
from tidelog.snapshot.lease import hold
from tidelog.snapshot.manifest import HASH_BYTES, NAME, Manifest, disagreement
from tidelog.snapshot.place import Place
from tidelog.snapshot.portable import (
    PIECE_BYTES,
    Progress,
    Unreadable,
    beneath,
    hashed,
    read_snapshot,
    silent,
    snapshots,
)
from tidelog.snapshot.restore import difference
from tidelog.snapshot.rows.opened import open_copy
from tidelog.snapshot.sealed import open_place, read_manifest
from tidelog.snapshot.still import still
from tidelog.snapshot.walk import walk

# A store with only these findings opens, and has lost no promised data.
HARMLESS: Final = frozenset(("durable", "time", "tail"))

_ATTEMPTS: Final = 5
_PAUSE_FRAMES: Final = 16
_PAUSE_S: Final = 0.00005


class Finding(NamedTuple):
    """One fault that `Store.verify` or `tidelog verify` found. `str` is check and text.

    Attributes:
        check: The check that found it: `identity`, `checkpoint`, `headers`, `segments`, `frames`, `records`, `blocks`,
            `agreement`, `snapshot`, `durable`, `time`, `tail` or `files`. With `durable`, `time` and `tail` nothing
            promised is missing.
        path: The file.
        text: The fault and its place in the file; names the stream, the block and the range of IDs if there is one.
        stream: Number of the stream concerned.
        block: Ordinal of the node in it.
        first: First ID of the unreadable range.
        last: Last ID of the unreadable range.
    """

    check: str
    path: Path
    text: str
    stream: int | None = None
    block: int | None = None
    first: str | None = None
    last: str | None = None

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


def verify_store(
    disk: Disk, root: Path, progress: Progress = silent, *, with_snapshots: bool = False
) -> list[Finding]:
    """Check the checkpoint, every segment of the log, and that the log continues the checkpoint.

    with_snapshots   check the kept snapshots too
    Raises NotAStore, NewerFormat, CheckpointError, OSError. Damage is not raised but returned as findings.
    """
    disk.guard(root)
    findings: list[Finding] = [
        Finding("files", Path(error.filename), str(error))
        for error in layout.all_misplaced(disk, root)
    ]
    if findings:
        # The store does not open while a name has the wrong kind, and the other checks might read the wrong files.
        return findings
    try:
        uuid = identity.read(disk, root)
    except DamagedFile as error:
        return [Finding("identity", error.path, str(error))]
    for attempt in range(_ATTEMPTS):
        try:
            findings = _verify_once(disk, root, uuid, progress)
            break
        except Vanished:  # of very many segments not all can be held
            if attempt == _ATTEMPTS - 1:
                raise
    if with_snapshots:
        for item in snapshots(disk, root / SNAPSHOTS):
            if isinstance(item, Unreadable):
                findings.append(Finding("snapshot", item.path, str(item.error)))
            else:
                with suppress(SnapshotGone):  # pruned meanwhile
                    findings += verify_snapshot(disk, item.path, progress)
    return findings


def _verify_once(disk: Disk, root: Path, uuid: bytes, progress: Progress) -> list[Finding]:
    """Raises Vanished."""
    findings = _walked_checkpoint(disk, root, progress)
    directory = root / identity.AOF
    if findings:  # this process does not map a damaged file
        with stilled(disk, directory, kept=(durable.NAME,), nbytes=durable.FILE_BYTES) as log_disk:
            log = _Log(log_disk, root, uuid, None, progress)
            log.run(damaged=True)
        return findings + log.findings
    with still(disk, root) as view:
        path = root / CHECKPOINT / DATA
        damaged = isinstance(view.fault, DamagedFile)
        if view.fault is not None:
            if not damaged:
                raise view.fault
            findings.append(Finding("checkpoint", path, str(view.fault)))
        start = None if view.opened is None else view.opened.meta.start
        if view.opened is not None and view.opened.meta.uuid != uuid:
            text = f"{path} is the checkpoint of another store, {view.opened.meta.uuid.hex()}"
            findings.append(Finding("agreement", path, text))
        log = _Log(view.disk, root, uuid, start, progress)
        log.run(damaged=damaged)
        return findings + log.findings


def _walked_checkpoint(disk: Disk, root: Path, progress: Progress) -> list[Finding]:
    if not disk.exists(root / CHECKPOINT / DATA):
        return []
    real, folder = beneath(disk, root / CHECKPOINT)
    with suppress(FileNotFoundError):  # blank: the first checkpoint was cut short
        return _walked("checkpoint", real, folder, progress)
    return []


def _walked(check: str, disk: Disk, folder: Path, progress: Progress) -> list[Finding]:
    """Let a child process read every row of the checkpoint in `folder`. Return its findings."""
    return [Finding(check, folder / DATA, *found) for found in walk(disk, folder, progress)]


class _Log:
    """The checks of the log, and whether it continues the checkpoint."""

    def __init__(
        self, disk: Disk, root: Path, uuid: bytes, start: Start | None, progress: Progress
    ) -> None:
        self.findings: list[Finding] = []
        self._disk, self._directory, self._uuid = disk, root / identity.AOF, uuid
        self._start = start
        self._progress = progress
        self._now = 0
        self._frames = 0

    def fail(self, check: str, path: Path, text: str) -> None:
        self.findings.append(Finding(check, path, text))

    def run(self, *, damaged: bool) -> None:
        """Run all checks. Raises Vanished.

        damaged   the checkpoint is damaged. Its position is then unknown, so segments may have been released
        """
        self._check_durable()
        if self._start is not None:
            self._check_agreement(self._start)
        try:
            promises, found = recovery.survey(
                self._disk,
                self._directory,
                self._uuid,
                released=self._start is not None or damaged,
            )
            self._scan(promises, found)
        except MissingSegment as error:
            self.fail("segments", error.path, str(error))
        except DamagedFile as error:
            self.fail("headers", error.path, str(error))

    def _check_agreement(self, start: Start) -> None:
        try:
            beginning(self._disk, self._directory, self._uuid, start)
        except DoesNotFit as error:
            self.fail("agreement", error.path, str(error))
        except CorruptFrame as error:
            self.fail("frames", error.path, str(error))
        except Damage:
            pass  # `run` finds and reports it again

    def _check_durable(self) -> None:
        path = self._directory / durable.NAME
        if not self._disk.exists(path):
            return
        data = recipe.read(self._disk, path, durable.FILE_BYTES)
        if any(data) and not durable.read(self._disk, self._directory, self._uuid):
            self.fail(
                "durable", path, f"{path}: both of its slots are damaged or belong to another store"
            )

    def _scan(self, promises: list[Promise], found: list[Segment]) -> None:
        scan: Scan | None = None
        for info in found:
            try:
                scan = Scan(self._disk, info, promises, live=True)
            except FileNotFoundError:
                raise Vanished(info.path) from None
            with self._progress(f"reading {info.path.name}", scan.size) as advance:
                self._segment(scan, advance)
        recovery.check_lives(self._directory, promises, found, scan)

    def _segment(self, scan: Scan, advance: Callable[[int], object]) -> None:
        offset = 0
        for frame in scan.frames():
            self._frames += 1
            if self._frames % _PAUSE_FRAMES == 0:
                advance(frame.offset - offset)
                offset = frame.offset
                time.sleep(_PAUSE_S)
            if frame.now < self._now:
                text = (
                    f"{scan.path}, byte {frame.offset}: the frame has the time {frame.now}, which is before that of "
                    f"the previous frame, {self._now}"
                )
                self.fail("time", scan.path, text)
            self._now = frame.now
            self._frame(scan.path, frame)
        advance(scan.size - offset)
        error = scan.error()
        if error is not None:
            check = "segments" if isinstance(error, MissingSegment) else "frames"
            self.fail(check, error.path, str(error))
        elif scan.verdict is Verdict.TORN:
            nbytes = scan.tail_bytes()
            self.fail(
                "tail",
                scan.path,
                f"{scan.path}, byte {scan.offset}: the log ends with {nbytes} bytes of an unfinished write; the next "
                "open for writing moves them to quarantine/",
            )

    def _frame(self, path: Path, frame: Frame) -> None:
        try:
            effects = records_of(path, frame)
        except CorruptFrame as error:
            return self.fail("records", path, str(error))
        for lsn, effect in enumerate(effects, frame.lsn):
            place = f"{path}, byte {frame.offset}, LSN {lsn}"
            if not is_known(effect[0]):
                self.fail("records", path, str(NewerRecord(path, frame.offset, lsn, effect[0])))
            elif effect[0] & OPCODE == e.XADD_MANY:
                for text in _bad_blocks(effect):
                    self.fail("blocks", path, f"{place}, stream {effect[2]!r}: {text}")


def _bad_blocks(effect: Effect) -> Iterator[str]:
    for number, (promised, block) in enumerate(effect[6]):
        try:
            found = len(rows_of(block))
        except CorruptBlock as error:
            yield f"node {number}: {error}"
            continue
        if found != promised:
            yield f"node {number}: {found} entries instead of {promised}"


def verify_snapshot(disk: Disk, path: Path, progress: Progress = silent) -> list[Finding]:
    """Check everything about one snapshot: manifest, size, hash, every row, and every count.

    Raises NotASnapshot, NewerSnapshot, SnapshotGone, OSError. Damage is not raised but returned as findings.
    """
    try:
        manifest = read_snapshot(disk, path).manifest
    except SnapshotDamaged as error:
        return [Finding("snapshot", path, str(error))]
    with hold(disk, path):
        return _verify_snapshot(disk, path, manifest, progress)


def verify_place(place: Place, progress: Progress = silent) -> list[Finding]:
    """Check everything about the snapshot at a place without LMDB: manifest, size, hash, rows and counts.

    The rows are read one by one only if the hash is wrong, to say which ones are damaged. Raises NotASnapshot,
    NewerSnapshot, SnapshotUnreachable, OSError. Damage is not raised but returned as findings.
    """
    path, data = Path(place.name), f"{place.name}/{DATA}"
    try:
        manifest = read_manifest(place)
    except SnapshotDamaged as error:
        return [Finding("snapshot", path, str(error))]
    texts = []
    strange = set(place.names()) - {DATA, NAME}
    if strange:
        texts.append(f"{place.name}: {min(strange)} does not belong to a snapshot; move it away")
    total = blake2b(digest_size=HASH_BYTES)
    offset = 0
    with progress("reading", manifest.data_bytes) as advance:
        while piece := place.read_at(DATA, offset, PIECE_BYTES):
            total.update(piece)
            offset += len(piece)
            advance(len(piece))
    changed = (offset, total.hexdigest()) != (manifest.data_bytes, manifest.blake2b)
    if changed:
        texts.append(f"{data}: {difference(manifest, offset, total.hexdigest())}")
    try:
        opened = open_place(place)
        if changed:
            for _ in opened.rows.rows(b""):
                pass
        texts += [f"{place.name}: {text}" for text in miscounted(manifest, opened.state())]
    except (SnapshotDamaged, CorruptBlock) as error:
        texts.append(str(error))
    return [Finding("snapshot", path, text) for text in texts]


def _verify_snapshot(
    disk: Disk, path: Path, manifest: Manifest, progress: Progress
) -> list[Finding]:
    data = path / DATA
    findings = []
    strange = set(disk.listdir(path)) - {DATA, NAME}
    if strange:
        text = f"{path}: {min(strange)} does not belong to a snapshot; move it away"
        findings.append(Finding("snapshot", path / min(strange), text))
    nbytes, digest = hashed(disk, data, progress, "reading")
    if (nbytes, digest) != (manifest.data_bytes, manifest.blake2b):
        text = f"{data}: {difference(manifest, nbytes, digest)}"
        findings.append(Finding("snapshot", data, text))
    real, folder = beneath(disk, path)
    inside = _walked("snapshot", real, folder, progress)
    findings += inside
    if inside:
        return findings
    try:
        opened = open_copy(real, folder)
        try:
            fault = disagreement(manifest, opened.meta)
            texts = [fault] if fault else miscounted(manifest, opened.state())
        finally:
            opened.close()
    except (DamagedFile, CheckpointError, CorruptBlock) as error:
        return [*findings, Finding("snapshot", data, str(error))]
    return findings + [Finding("snapshot", path, f"{path}: {text}") for text in texts]
