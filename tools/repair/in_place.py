"""In place: repair the store itself, for want of room for a copy.

The caller holds LOCK. Everything that is removed is in `quarantine/repair.<time>/` first, durably. Each step is durable
before the next begins:

    1. STORE is written anew; damaged headers are written as they must have been; segments get their right names; files
       that are no part of the log go to the quarantine. Then all is read again.
    2. A checkpoint that cannot be used goes to the quarantine; the data of the snapshot that replaces it is copied to
       its place.
    3. The log up to its new end is folded into the checkpoint, if records that lead there will be missing in aof/.
    4. DURABLE is lowered to the new end, else it would prove that records are missing.
    5. Segments behind the new end go to the quarantine, the newest first; then the bytes behind it in the segment that
       holds it; then segments before a gap.
    6. If no segment is left, one without frames is made, which begins behind the checkpoint.

After a power cut the store does not open, or opens with all that the repair keeps. The same command then finishes the
work: it looks at what is there, and finds the same end.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

from tidelog.aof import durable, identity, segment
from tidelog.aof.durable import DurableFile, Promise
from tidelog.aof.layout import CHECKED
from tidelog.aof.reading.window import Windows
from tidelog.aof.segment import End, SegmentHeader
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.tools.repair.look import Seen, look
from tidelog.tools.repair.mend import MISPLACED, Mend
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.plan import Plan, plan
from tidelog.tools.repair.writing import RepairFailed, bring_forward, is_as_promised

REPORT: Final = "REPAIR.json"
ASIDE: Final = "repair."  # how the names of its directories in quarantine/ begin
CUT: Final = ".cut"  # suffix of the bytes behind the end in the segment that holds it
HEADER: Final = ".header"  # suffix of a header as it was


def repair(files: MendedFiles, seen: Seen, found: Plan, report: bytes, time_ms: int) -> Path:
    """Repair the store as planned. Returns the directory that has what was removed. The caller holds LOCK.

    report   for the file REPAIR.json in that directory

    Raises RepairFailed, OSError.
    """
    disk, root = files.disk, files.root
    aside = _new_directory(disk, root / identity.QUARANTINE, time_ms)
    recipe.publish(disk, aside / REPORT, report)
    if files.store is not None:
        _keep(disk, root / identity.NAME, aside)
        recipe.publish(disk, root / identity.NAME, identity.render(files.uuid))
    if files.mends:
        _mend(disk, files.mends, aside)
    if files.mends or files.store is not None:
        files = MendedFiles(root, disk)
        seen = look(files)
        again = plan(files, seen)
        if again is None or files.mends or (again.lsn, again.digest) != (found.lsn, found.digest):
            raise _failed(root, aside)
        found = again
    _Cutter(files, found, aside, time_ms).run()
    if not is_as_promised(disk, root, found):
        raise _failed(root, aside)
    return aside


def settle(files: MendedFiles) -> None:
    """Make the page cache of the last segment agree with the disk, as recovery does. Before anything is looked at."""
    paths = files.paths()
    if not paths:
        return
    with closing(files.disk.open(paths[-1], write=True)) as file:
        file.fsync()
        file.drop_cache()
    files.disk.sync_directory(files.directory)


def _failed(root: Path, aside: Path) -> RepairFailed:
    return RepairFailed(
        f"{root} does not hold what was promised. Everything removed is in {aside}. Keep the directory and report this"
    )


def _new_directory(disk: Disk, quarantine: Path, time_ms: int) -> Path:
    recipe.make_directory(disk, quarantine)
    while disk.exists(quarantine / f"{ASIDE}{time_ms}"):
        time_ms += 1
    aside = quarantine / f"{ASIDE}{time_ms}"
    recipe.make_directory(disk, aside)
    return aside


def _free(disk: Disk, aside: Path, name: str) -> Path:
    """A name in the directory that is not taken: a file under a wrong name may go there, and later another one."""
    number, path = 1, aside / name
    while disk.exists(path):
        number += 1
        path = aside / f"{name}.{number}"
    return path


def _keep(disk: Disk, path: Path, aside: Path) -> None:
    """Copy a file, as far as it is there."""
    if disk.exists(path):
        _copy(disk, path, _free(disk, aside, path.name), 0, recipe.size(disk, path))


def _copy(disk: Disk, path: Path, target: Path, start: int, end: int) -> None:
    """Copy the bytes from `start` to `end` of a file into a new one. Holes stay holes."""
    with closing(Windows(disk, path)) as windows:
        pieces = ((offset - start, piece) for offset, piece in windows.pieces(start))
        recipe.publish_pieces(disk, target, end - start, pieces)


def _move(disk: Disk, path: Path, aside: Path) -> None:
    recipe.move(disk, path, _free(disk, aside, path.name))


# --- step 1


def _mend(disk: Disk, mends: list[Mend], aside: Path) -> None:
    misplaced: list[tuple[Path, Path]] = []
    for mend in mends:
        if mend.place is None:
            _move(disk, mend.path, aside)
        elif mend.rebuilt:
            assert mend.fields is not None
            # Before the file gets its name: a power cut leaves a damaged header only under a segment's name.
            _rewrite(disk, mend.path, mend.fields, aside)
        if mend.place not in (None, mend.path):
            misplaced.append((mend.path, mend.place))
    while misplaced:
        path, place = misplaced.pop(0)
        if disk.exists(place):
            # Another segment has its name, and has a right name of its own, too.
            at = next(at for at, (held, _) in enumerate(misplaced) if held == place)
            beside = place.with_name(place.name + MISPLACED)
            _rename(disk, place, beside)
            misplaced[at] = beside, misplaced[at][1]
        _rename(disk, path, place)


def _rewrite(disk: Disk, path: Path, header: SegmentHeader, aside: Path) -> None:
    kept = _free(disk, aside, path.name + HEADER)
    _copy(disk, path, kept, 0, segment.HEADER_BYTES)
    with closing(disk.open(path, write=True)) as file:
        # A torn write leaves a damaged header, which the neighbours prove as before.
        file.write(0, header.pack())
        file.fsync()


def _rename(disk: Disk, path: Path, place: Path) -> None:
    disk.rename(path, place)
    disk.sync_directory(path.parent)


# --- steps 2 to 6


class _Cutter:
    """Makes the base the checkpoint, and the log end where it can be followed to."""

    def __init__(self, files: MendedFiles, found: Plan, aside: Path, time_ms: int) -> None:
        self.files, self.found, self.aside, self.time_ms = files, found, aside, time_ms
        self.disk = files.disk
        self.folder = files.checkpoint.parent
        self.rebuilds = False

    def run(self) -> None:
        self.put_base()
        self.fold()
        self.lower()
        self.cut()
        self.begin()
        self.promise()

    @property
    def stands(self) -> bool:
        """Whether the base is the checkpoint that is there."""
        base = self.found.base
        return base.folder == self.folder and not base.is_snapshot

    def put_base(self) -> None:
        base = self.found.base
        self.rebuilds = self.files.has_checkpoint and not self.stands
        if self.rebuilds:
            if self.disk.exists(self.folder / CHECKED):
                recipe.remove(self.disk, self.folder / CHECKED)
            _move(self.disk, self.files.checkpoint, self.aside)
        if base.is_snapshot:
            assert base.folder is not None
            recipe.make_directory(self.disk, self.folder)
            source = base.folder / identity.DATA
            _copy(self.disk, source, self.files.checkpoint, 0, recipe.size(self.disk, source))

    def fold(self) -> None:
        if self.needs_fold:
            recipe.make_directory(self.disk, self.folder)
            bring_forward(self.files, self.found, self.folder, self.files.uuid)

    @property
    def needs_fold(self) -> bool:
        found, start = self.found, self.found.base.start
        if found.base.folder is None:
            return self.rebuilds
        if found.run and found.first_lsn > start.lsn + 1:
            return True
        if start.lsn < found.lsn:
            return not found.run
        return bool(found.run) and start.position != found.end.position

    def lower(self) -> None:
        promises = durable.read(self.disk, self.files.directory, self.files.uuid)
        if any(promise.lsn > self.found.lsn for promise in promises):
            _keep(self.disk, self.files.directory / durable.NAME, self.aside)
            end = Promise(self.found.end.incarnation, self.found.lsn)
            durable.lower(self.disk, self.files.directory, self.files.uuid, end)

    def cut(self) -> None:
        kept = [part.info.path for part in self.found.run]
        gone = [path for path in self.files.paths() if path not in kept]
        behind = [path for path in gone if int(path.stem) > self.found.lsn]
        for path in reversed(behind):
            _move(self.disk, path, self.aside)
        if kept and (behind or self.found.reach.damage is not None):
            self._shorten(kept[-1], self.found.end.offset)
        for path in gone:
            if path not in behind:
                _move(self.disk, path, self.aside)

    def _shorten(self, path: Path, size: int) -> None:
        with closing(Windows(self.disk, path)) as windows:
            end = windows.data_end(size)
        if end > size:
            kept = _free(self.disk, self.aside, f"{path.name}.{size}{CUT}")
            _copy(self.disk, path, kept, size, end)
        if recipe.size(self.disk, path) == size:
            return
        with closing(self.disk.open(path, write=True)) as file:
            # A power cut may leave some of these bytes. They are damage, or a torn tail, at the same place as before.
            file.truncate(size)
            file.fsync()

    def begin(self) -> None:
        end = self.found.end
        if self.found.run:
            return
        recipe.make_directory(self.disk, self.files.directory)
        before = End(end.lsn, 0, end.crc)
        header = SegmentHeader(self.files.uuid, end.incarnation, end.lsn + 1, self.time_ms, before)
        path = self.files.directory / segment.file_name(end.lsn + 1)
        recipe.publish(self.disk, path, header.pack())

    def promise(self) -> None:
        path = self.files.directory / durable.NAME
        if self.files.durable_fault() is None and self.disk.exists(path):
            return
        _keep(self.disk, path, self.aside)
        recipe.publish(self.disk, path, bytes(durable.FILE_BYTES))
        with closing(DurableFile(self.disk, self.files.directory, self.files.uuid)) as slots:
            slots.write(self.found.end.incarnation, self.found.lsn)
            slots.sync()
