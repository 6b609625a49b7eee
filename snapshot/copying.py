"""Copying: copy a snapshot from one place to another and verify it. An interrupted copy can be continued.

The target directory while it is copied to:

    COPYING       text: which snapshot, and below it the BLAKE2b of each piece of data.mdb that was written (local only)
    data.mdb.new  the pieces so far (local only; an object store shows data.mdb only when all of it is there)
    data.mdb      gets this name after it was read back and its BLAKE2b was that in the manifest
    manifest.json the bytes of the source's manifest, written last: from then on the copy is a snapshot

A local copy that is continued first reads the pieces that exist, and goes on at the first one that does not match its
hash in COPYING. So pieces that a power cut damaged are copied again. A process locks COPYING while it copies. To a URL,
data.mdb is sent again as a whole, unless it exists and its hash is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.aof.identity import DATA
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.snapshot.errors import SnapshotDamaged, SnapshotError, SnapshotRefused
from tidelog.snapshot.manifest import (
    HASH_BYTES,
    NAME,
    UNFINISHED_COPY,
    Manifest,
    check_name,
    parse,
)
from tidelog.snapshot.place import LocalPlace, Place
from tidelog.snapshot.portable import Progress, hashed, silent
from tidelog.snapshot.remote import RemotePlace
from tidelog.snapshot.restore import difference
from tidelog.snapshot.sealed import read_manifest

MARK: Final = UNFINISHED_COPY
NEW: Final = DATA + recipe.BESIDE
PIECE_BYTES: Final = 4 << 20
SUM_BYTES: Final = 16
NOT_RETURNED: Final = "the data that is read back is not the data that was written"
_LINE: Final = 2 * SUM_BYTES + 1  # bytes of the line of one piece in COPYING
_OURS: Final = frozenset((MARK, NEW, DATA, NAME + recipe.BESIDE))


class Copied(NamedTuple):
    """The result of a copy.

    name      path or URL of the copy
    manifest  of the snapshot
    kept      bytes of data.mdb that an earlier, interrupted copy wrote, and that were right
    existed   the whole snapshot existed already, and was only verified
    """

    name: str
    manifest: Manifest
    kept: int
    existed: bool


def copy_snapshot(source: Place, target: Place, progress: Progress = silent) -> Copied:
    """Copy the snapshot at one place to another, or continue an interrupted copy. The caller closes both places.

    Raises NotASnapshot, SnapshotDamaged, NewerSnapshot of the source; SnapshotRefused if the target contains anything
    else; SnapshotUnreachable, OSError.
    """
    # read the manifest before taking the lease, because its errors are more precise
    manifest = read_manifest(source)
    with source.hold():
        job = _Job(source, manifest, progress)
        try:
            check_name(target.name, job.manifest)
        except SnapshotDamaged as error:
            raise SnapshotRefused(
                f"{target.name}: {error.reason}; choose another name for the copy, or end its path with "
                f"{job.manifest.lsn:020d}"
            ) from None
        if isinstance(target, LocalPlace):
            return _Local(job, target.disk, target.path).run()
        assert isinstance(target, RemotePlace)
        return _Remote(job, target).run()


class _Job:
    """The source of a copy, and its manifest, which the copy must match."""

    def __init__(self, source: Place, manifest: Manifest, progress: Progress) -> None:
        self.source, self.manifest, self.progress = source, manifest, progress
        self.seal = source.read_at(NAME, 0, source.size(NAME))
        self.mark = (
            f"tidelog copy, not finished\nof the snapshot with BLAKE2b {self.manifest.blake2b}\n"
            "This directory is not a snapshot yet. Copy to it again, or delete it.\n"
        ).encode()

    def piece(self, offset: int) -> bytes:
        """The piece of the source that begins at `offset`."""
        nbytes = min(PIECE_BYTES, self.manifest.data_bytes - offset)
        piece = self.source.read_at(DATA, offset, nbytes)
        if len(piece) != nbytes:
            raise self.damaged(offset + len(piece), "")
        return piece

    def damaged(self, nbytes: int, digest: str) -> SnapshotDamaged:
        return SnapshotDamaged(
            f"{self.source.name}/{DATA}", difference(self.manifest, nbytes, digest)
        )

    def is_seal(self, data: bytes, name: str) -> bool:
        """Whether a manifest at the target is of the same data. Raises SnapshotRefused if it is not."""
        try:
            same = parse(name, data).blake2b == self.manifest.blake2b
        except SnapshotError:
            same = False
        if not same:
            raise SnapshotRefused(
                f"{name}: the target is another snapshot, or a damaged one; name a new or empty directory"
            )
        return True


def _refuse(directory: str, names: set[str]) -> None:
    """Raise SnapshotRefused if the target contains files that are not of a copy."""
    strange = names - _OURS
    if strange or (names and MARK not in names and names - {DATA, NAME + recipe.BESIDE}):
        raise SnapshotRefused(
            f"{directory} is not empty (it contains {min(strange or names)}); name a new or empty directory"
        )


def _another(directory: str) -> SnapshotRefused:
    return SnapshotRefused(
        f"{directory} contains an unfinished copy of another snapshot; delete it, or name another directory"
    )


class _Local:
    """A copy to a local directory."""

    def __init__(self, job: _Job, disk: Disk, directory: Path) -> None:
        self.job, self.disk, self.directory = job, disk, directory
        self.manifest = job.manifest

    def run(self) -> Copied:
        disk, directory = self.disk, self.directory
        try:
            names = set(disk.listdir(directory))
        except FileNotFoundError:
            recipe.make_directory(disk, directory)
            names = set()
        except NotADirectoryError:
            raise SnapshotRefused(
                f"{directory} is not a directory; name a new or empty directory"
            ) from None
        if NAME in names:
            return self._existing(names)
        _refuse(str(directory), names)
        if DATA in names:
            # Either an earlier copy was interrupted after it renamed the file, or the file belongs to someone else.
            # Verify it before writing anything.
            self._verify(directory / DATA)
        disk.sync_directory(directory.parent)
        lock = disk.lock(directory / MARK)
        if lock is None:
            raise SnapshotRefused(
                f"{directory}: another process is copying to it; wait until it has finished"
            )
        try:
            kept = self.manifest.data_bytes if DATA in names else self._pieces(lock)
            recipe.remove(disk, lock.path)
        finally:
            lock.close()
        recipe.publish(disk, directory / NAME, self.job.seal)
        return Copied(str(directory), self.manifest, kept, False)

    def _existing(self, names: set[str]) -> Copied:
        path = self.directory / NAME
        self.job.is_seal(recipe.read(self.disk, path), str(path))
        strange = names - {NAME, DATA}
        if strange:
            raise SnapshotRefused(
                f"{self.directory} contains {min(strange)}, which does not belong to a snapshot; move it away"
            )
        self._verify(self.directory / DATA)
        return Copied(str(self.directory), self.manifest, self.manifest.data_bytes, True)

    def _pieces(self, mark: File) -> int:
        """Copy data.mdb and give it its name. Returns how many of its bytes an earlier copy had written."""
        disk, head = self.disk, self.job.mark
        found = mark.pread(mark.size(), 0)
        if not found.startswith(head):
            # If an earlier copy was interrupted while it wrote the mark, the file holds only the beginning of our mark,
            # or nothing. After a power cut it may hold zeros.
            if found.strip(b"\0") and not head.startswith(found.rstrip(b"\0")):
                raise _another(str(self.directory))
            mark.truncate(0)
            mark.write(0, head)
            mark.fsync()
            found = head
        path = self.directory / NEW
        file = disk.open(path, write=True) if disk.exists(path) else disk.create(path)
        try:
            total = blake2b(digest_size=HASH_BYTES)
            kept = self._sound(file, found[len(head) :], total)
            at = len(head) + -(-kept // PIECE_BYTES) * _LINE
            mark.truncate(at)
            file.truncate(kept)
            with self.job.progress("copying", self.manifest.data_bytes) as advance:
                advance(kept)
                offset = kept
                while offset < self.manifest.data_bytes:
                    piece = self.job.piece(offset)
                    file.write(offset, piece)
                    mark.write(at, _sum(piece))
                    total.update(piece)
                    offset += len(piece)
                    at += _LINE
                    advance(len(piece))
            file.fsync()
            if total.hexdigest() != self.manifest.blake2b:
                # forget the pieces, so that the next attempt copies all of them again
                mark.truncate(len(head))
                raise self.job.damaged(self.manifest.data_bytes, total.hexdigest())
            if hashed(disk, path, self.job.progress, "verifying")[1] != self.manifest.blake2b:
                raise SnapshotDamaged(path, NOT_RETURNED)
            recipe.publish_open(disk, file, self.directory / DATA)
        finally:
            file.close()
        return kept

    def _sound(self, file: File, sums: bytes, total: Any) -> int:
        """How many bytes at the start of an unfinished file match their hashes. They are added to `total`."""
        offset = at = 0
        size = min(file.size(), self.manifest.data_bytes)
        file.drop_cache()
        with self.job.progress("checking what is there", size) as advance:
            while offset < size:
                nbytes = min(PIECE_BYTES, self.manifest.data_bytes - offset)
                piece = file.pread(nbytes, offset)
                if len(piece) != nbytes or sums[at : at + _LINE] != _sum(piece):
                    break
                total.update(piece)
                offset += nbytes
                at += _LINE
                advance(nbytes)
        return offset

    def _verify(self, path: Path) -> None:
        try:
            found = hashed(self.disk, path, self.job.progress, "verifying")
        except FileNotFoundError:
            raise SnapshotDamaged(path, "the file is missing") from None
        if found != (self.manifest.data_bytes, self.manifest.blake2b):
            raise SnapshotRefused(
                f"{path}: {difference(self.manifest, *found)}; delete {path.parent}, or name another directory"
            )


def _sum(piece: bytes) -> bytes:
    return blake2b(piece, digest_size=SUM_BYTES).hexdigest().encode() + b"\n"


class _Remote:
    """A copy to a URL."""

    def __init__(self, job: _Job, place: RemotePlace) -> None:
        self.job, self.place, self.manifest = job, place, job.manifest

    def run(self) -> Copied:
        place, name = self.place, self.place.name
        try:
            names = set(place.names())
        except FileNotFoundError:
            names = set()
        if NAME in names:
            self.job.is_seal(place.read_at(NAME, 0, place.size(NAME)), f"{name}/{NAME}")
            if not self._is_right():
                raise SnapshotRefused(
                    f"{name}/{DATA} is not the data of this snapshot; delete {name}, or name another URL"
                )
            return Copied(name, self.manifest, self.manifest.data_bytes, True)
        _refuse(name, names)
        if MARK in names:
            found = place.read_at(MARK, 0, place.size(MARK))
            if found and found != self.job.mark:
                raise _another(name)
        kept = DATA in names and self._is_right()
        if DATA in names and not kept and MARK not in names:
            raise SnapshotRefused(f"{name} is not empty (it contains {DATA}); name another URL")
        if not kept:
            self._send()
        with suppress(FileNotFoundError):
            place.delete(MARK)
        place.write(NAME, iter((self.job.seal,)))
        return Copied(name, self.manifest, self.manifest.data_bytes if kept else 0, False)

    def _send(self) -> None:
        place = self.place
        place.make_directory()
        place.write(MARK, iter((self.job.mark,)))
        total = blake2b(digest_size=HASH_BYTES)
        place.write(DATA, self._source(total))
        if total.hexdigest() != self.manifest.blake2b:
            raise self.job.damaged(self.manifest.data_bytes, total.hexdigest())
        if not self._is_right():
            raise SnapshotDamaged(f"{place.name}/{DATA}", NOT_RETURNED)

    def _source(self, total: Any) -> Iterator[bytes]:
        offset = 0
        with self.job.progress("copying", self.manifest.data_bytes) as advance:
            while offset < self.manifest.data_bytes:
                piece = self.job.piece(offset)
                total.update(piece)
                yield piece
                offset += len(piece)
                advance(len(piece))

    def _is_right(self) -> bool:
        """Whether data.mdb at the target has the hash in the manifest."""
        place, size = self.place, self.manifest.data_bytes
        try:
            if place.size(DATA) != size:
                return False
        except FileNotFoundError:
            return False
        total = blake2b(digest_size=HASH_BYTES)
        offset = 0
        with self.job.progress("verifying", size) as advance:
            while offset < size:
                piece = place.read_at(DATA, offset, PIECE_BYTES)
                total.update(piece)
                offset += len(piece)
                advance(len(piece))
        return total.hexdigest() == self.manifest.blake2b
