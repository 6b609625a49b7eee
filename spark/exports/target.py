"""Target: the directory or URL that an export is written to and read from.

A local file is written beside its name, fsynced and renamed (disk/recipe.py), and its directories are synced. So a file
with a final name is whole, even after a power cut. At a URL, pyarrow.fs publishes a file when it is closed.
"""

from __future__ import annotations

import random
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import Kind
from tidelog.disk.real import RealDisk
from tidelog.snapshot.errors import SnapshotRefused, SnapshotUnreachable
from tidelog.snapshot.place import is_url, local
from tidelog.snapshot.remote import RemoteFolder, reason_of
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.batch.snapshots import shown
from tidelog.spark.source.options import OPTION

EXPORT: Final = "TIDELOG_EXPORT"  # code: the export cannot be made or used; the text says why
DAMAGED: Final = "TIDELOG_DAMAGED"
IO: Final = "TIDELOG_IO"

HASH_BYTES: Final = 32
PIECE_BYTES: Final = 1 << 20
HELD_BYTES: Final = 64 << 10
LOCK: Final = "_LOCK"
CLAIM: Final = re.compile(r"_claim-([0-9a-f]+)-[0-9a-f]{16}")
CLAIMS: Final = 5
CLAIM_PAUSE_S: Final = 0.2


class Overtaken(Exception):
    """Another commit came first, so this one was not made."""


class Written(NamedTuple):
    """A file of an export: its size and BLAKE2b, hexadecimal."""

    nbytes: int
    blake2b: str


class Target(Protocol):
    """A directory of files. Their names are relative and use `/`.

    Errors are OSError, SnapshotUnreachable at a URL, or SnapshotRefused for a URL that cannot be used.

    name        the path or URL, for errors; without credentials
    together    how many files are worth publishing at the same time
    """

    name: str
    together: int

    def files(self) -> dict[str, int]:
        """All files below it and their sizes; empty if there is nothing."""
        ...

    def read(self, file: str) -> bytes: ...

    def source(self, file: str) -> Any:
        """A file that pyarrow can read."""
        ...

    def create(self, file: str) -> Sink: ...

    def publish(self, sinks: Sequence[Any]) -> list[Written]:
        """Make files that were created here durable, and give them their names."""
        ...

    def remove(self, file: str) -> None: ...

    def sync(self) -> None:
        """Make the names durable that another process has published there."""
        ...

    @contextmanager
    def locked(self, identity: str) -> Iterator[None]:
        """Keep other exports out. At a URL, one of the same identity is let in. Raises TidelogSparkError."""
        ...


class Sink:
    """A file that is being written, for pyarrow. `publish` gives it its name; `drop` removes it."""

    closed = False
    target: Target

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=HASH_BYTES)
        self._nbytes = 0
        self._held: list[bytes] = []  # the last bytes, which are not in the file yet
        self._held_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._nbytes

    def write(self, data: Any) -> int:
        data = bytes(data)
        if len(data) >= HELD_BYTES:  # alone: joined with what is held, it would be in memory twice
            self.settle()
        self._held.append(data)
        self._held_bytes += len(data)
        self._nbytes += len(data)
        if self._held_bytes >= HELD_BYTES:
            self.settle()
        return len(data)

    def settle(self) -> None:
        """Put everything into the file."""
        if not self._held:
            return
        data = b"".join(self._held)
        at = self._nbytes - len(data)
        self._held.clear()
        self._held_bytes = 0
        self._hash.update(data)
        self._put(at, data)

    def flush(self) -> None:
        """A Parquet file comes in many small pieces, so `settle` writes them."""

    def close(self) -> None:
        """A writer of pyarrow closes its file; the file is published separately."""

    def publish(self) -> Written:
        """Make the file durable and give it its name."""
        (written,) = self.target.publish([self])
        return written

    @property
    def written(self) -> Written:
        """The size and hash, once everything is settled."""
        return Written(self._nbytes, self._hash.hexdigest())

    def drop(self) -> None:
        raise NotImplementedError

    def _put(self, offset: int, data: bytes) -> None:
        raise NotImplementedError


class LocalTarget:
    """A directory of this machine, or of a file system that all workers have mounted."""

    together = 128
    each = staticmethod(recipe.in_threads)

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.name = str(path)
        self.disk, self.path = disk or RealDisk(), path
        self._durable: set[Path] = set()  # directories
        self._there: set[Path] = set()  # directories of the export that exist
        self._unsynced: set[Path] = set()  # those that may have a new directory

    def files(self) -> dict[str, int]:
        found: dict[str, int] = {}
        kind = self.disk.kind(self.path)
        if kind is not None:
            self._walk(self.path, "", found)
        return found

    def _walk(self, folder: Path, prefix: str, found: dict[str, int]) -> None:
        for name in self.disk.listdir(folder):
            try:
                if self.disk.kind(folder / name) is Kind.DIRECTORY:
                    self._walk(folder / name, f"{prefix}{name}/", found)
                else:
                    found[prefix + name] = recipe.size(self.disk, folder / name)
            except FileNotFoundError:  # another process has just renamed or removed this name
                continue

    def read(self, file: str) -> bytes:
        return recipe.read(self.disk, self.path / file)

    def source(self, file: str) -> Any:
        return fs.LocalFileSystem().open_input_file(str(self.path / file))

    def create(self, file: str) -> Sink:
        path = self.path / file
        self._make(path.parent)
        return _LocalSink(self, path)

    def publish(self, sinks: Sequence[_LocalSink]) -> list[Written]:
        try:
            for sink in sinks:
                sink.settle()
            files = [(sink.file, sink.path) for sink in sinks]
            recipe.publish_together(self.disk, files, self.each)
        finally:
            for sink in sinks:
                sink.file.close()
        folders, self._unsynced = sorted(self._unsynced), set()
        self.each(self._sync, folders)
        return [sink.written for sink in sinks]

    def make(self, folder: Path) -> None:
        """Create a directory and those above it, durably."""
        if folder in self._durable:
            return
        if not self.disk.exists(folder):
            self.make(folder.parent)
            with suppress(FileExistsError):  # another task has just made it
                self.disk.mkdir(folder)
        # Sync it even if it exists: a process that made it may have been killed before it synced.
        self._sync(folder.parent)
        self._durable.add(folder)

    def _make(self, folder: Path) -> None:
        """Create a directory of the export. `publish` makes it durable."""
        if folder in self._there:
            return
        if folder == self.path:
            self.make(folder)
        else:
            # Each directory on the way is synced even if it exists, as in `make`.
            self._make(folder.parent)
            if not self.disk.exists(folder):
                with suppress(FileExistsError):
                    self.disk.mkdir(folder)
            self._unsynced.add(folder.parent)
        self._there.add(folder)

    def _sync(self, folder: Path) -> None:
        # An export has not made a directory that this process may not open.
        with suppress(PermissionError):
            self.disk.sync_directory(folder)

    def remove(self, file: str) -> None:
        with suppress(FileNotFoundError):
            self.disk.unlink(self.path / file)

    def sync(self) -> None:
        self._sync(self.path)

    @contextmanager
    def locked(self, identity: str) -> Iterator[None]:
        self.make(self.path)
        with sole(self.path / LOCK) as alone:
            if not alone:
                raise _busy(self.name)
            yield


@contextmanager
def sole(path: Path) -> Iterator[bool]:
    """Hold the lock on a file that exists only meanwhile; False if another process, or thread, holds it."""
    while True:
        # A RealDisk that holds a lock refuses all work once the lock's file is gone, so use a separate RealDisk for it.
        held = RealDisk().lock(path)
        if held is None:
            yield False
            return
        if held.has_its_name():
            break
        held.close()  # its owner deleted it between our opening and locking it
    try:
        yield True
    finally:
        with suppress(FileNotFoundError):
            RealDisk().unlink(path)
        held.unlock()
        held.close()


def _busy(name: str, claim: str = "") -> TidelogSparkError:
    left = f", or delete {claim} if it was killed" if claim else ""
    return TidelogSparkError(
        EXPORT, f"{name}: another export is being written there; wait until it has ended{left}"
    )


class _LocalSink(Sink):
    def __init__(self, target: LocalTarget, path: Path) -> None:
        super().__init__()
        # Two attempts may write the same file at the same time: the process of a killed export may still be running.
        self._beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{recipe.BESIDE}")
        self.target, self.path = target, path
        self._disk = target.disk
        self.file: File = self._disk.create(self._beside)

    def _put(self, offset: int, data: bytes) -> None:
        self.file.write(offset, data)

    def drop(self) -> None:
        self.file.close()
        with suppress(OSError):
            self._disk.unlink(self._beside)


class RemoteTarget:
    """A folder in an object store or a distributed file system, through pyarrow.fs."""

    together = 1

    def __init__(self, url: str) -> None:
        """Raises SnapshotError."""
        self._folder = RemoteFolder(url)
        self.name = self._folder.name
        self._fs, self._root = self._folder.files, self._folder.path

    def files(self) -> dict[str, int]:
        wanted = self._folder.fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        with self._folder.telling(""):
            return {
                info.path[len(self._root) + 1 :]: info.size
                for info in self._fs.get_file_info(wanted)
                if info.is_file
            }

    def read(self, file: str) -> bytes:
        with self._folder.telling(file), self._fs.open_input_stream(self._at(file)) as stream:
            found: bytes = stream.read()
        return found

    def source(self, file: str) -> Any:
        with self._folder.telling(file):
            return self._fs.open_input_file(self._at(file))

    def create(self, file: str) -> Sink:
        path = self._at(file)
        if self._folder.has_directories:
            with self._folder.telling(file):
                self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        return _RemoteSink(self, self._folder, file, path)

    def publish(self, sinks: Sequence[_RemoteSink]) -> list[Written]:
        for sink in sinks:
            sink.settle()
            sink.finish()
        return [sink.written for sink in sinks]

    def remove(self, file: str) -> None:
        with suppress(FileNotFoundError), self._folder.telling(file):
            self._fs.delete_file(self._at(file))

    def sync(self) -> None: ...

    @contextmanager
    def locked(self, identity: str) -> Iterator[None]:
        """An object store has no locks, and pyarrow no conditional put. But a list has all names that were put before.

        So each process puts a claim under a name of its own and then lists the claims. Of two that claim at the same
        time, at least one sees the other's claim and takes its own back. If both do, each tries again after a while.
        A claim that a killed process left lets in only exports of the same identity.
        """
        for attempt in range(CLAIMS):
            claim = f"_claim-{identity}-{secrets.token_hex(8)}"
            put(self, claim, b"")
            others = [name for name in self.files() if _of_another(name, identity)]
            if not others:
                break
            self.remove(claim)
            time.sleep(random.uniform(0, CLAIM_PAUSE_S * (attempt + 1)))
        else:
            raise _busy(self.name, others[0])
        try:
            yield
        finally:
            self.remove(claim)

    def _at(self, file: str) -> str:
        return f"{self._root}/{file}"


class _RemoteSink(Sink):
    def __init__(self, target: RemoteTarget, folder: RemoteFolder, file: str, path: str) -> None:
        super().__init__()
        self.target = target
        self._folder, self._file, self._path = folder, file, path
        with folder.telling(file):
            self._stream = folder.files.open_output_stream(path)

    def _put(self, offset: int, data: bytes) -> None:
        with self._folder.telling(self._file, offset):
            self._stream.write(data)

    def finish(self) -> None:
        """Publish the file."""
        with self._folder.telling(self._file):
            self._stream.close()

    def drop(self) -> None:
        with suppress(OSError):
            self._stream.close()
            self._folder.files.delete_file(self._path)


def _of_another(name: str, identity: str) -> bool:
    claim = CLAIM.fullmatch(name)
    return claim is not None and claim[1] != identity


def target_of(place: str) -> Target:
    """The target at a path or URL. Raises SnapshotError."""
    return RemoteTarget(place) if is_url(place) else LocalTarget(local(place).absolute())


def put(target: Target, file: str, data: bytes) -> Written:
    """Publish a small file."""
    with writing(target, file) as sink:
        sink.write(data)
        return sink.publish()


@contextmanager
def writing(target: Target, file: str) -> Iterator[Sink]:
    """A new file. The block publishes it; if the block fails, the file is removed."""
    sink = target.create(file)
    try:
        yield sink
    except BaseException:
        sink.drop()
        raise


def written(target: Target, file: str) -> Written:
    """Read a file and say its size and BLAKE2b."""
    digest = blake2b(digest_size=HASH_BYTES)
    nbytes = 0
    with target.source(file) as stream:
        while piece := stream.read(PIECE_BYTES):
            digest.update(piece)
            nbytes += len(piece)
    return Written(nbytes, digest.hexdigest())


@contextmanager
def telling(place: str) -> Iterator[None]:
    """Raise errors of files, and of reading Parquet, as TidelogSparkError."""
    try:
        yield
    except SnapshotUnreachable as error:
        raise TidelogSparkError(IO, str(error)) from error
    except SnapshotRefused as error:
        raise TidelogSparkError(OPTION, str(error)) from error
    except OSError as error:
        where = error.filename or shown(place)
        raise TidelogSparkError(
            IO, f"{where}: {error.strerror or reason_of(place, error)}"
        ) from error
    except pa.ArrowException as error:
        raise TidelogSparkError(DAMAGED, f"{shown(place)}: {reason_of(place, error)}") from error
