"""The recorder: a disk that passes everything on to another disk and notes it in a trace.

One lock orders the operations of all threads, so the trace has one order, and it is one in which they took effect.
A sync is two operations. Between them the lock is free, so the trace shows what was written while the sync ran. Only
what came before its beginning is durable when it ends: a real fsync promises no more.

LMDB writes its files by itself. The recorder keeps a shadow of each file in a directory that was given to such a
library (`Disk.beneath`), and of each file whose descriptor was given away (`File.fileno`). At every operation it looks
for differences, page by page, and notes them as writes without a sync. crash/commits.py adds the syncs that LMDB makes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tidelog.crash.passing import PassingDisk, PassingFile
from tidelog.crash.trace import (
    ROOT,
    Create,
    Mkdir,
    Operation,
    Promised,
    Rename,
    Size,
    SyncBegin,
    SyncEnd,
    Trace,
    Tree,
    Unit,
    Unlink,
    Write,
    numbered,
    tree_of,
)
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import Kind

PAGE: Final = 4096


class RecordingDisk(PassingDisk):
    """A `disk.interface.Disk` that records what happens below `root`, the directory that holds the store.

    operations   the record
    base         what was below `root` at the beginning
    meanwhile    called with a path while a file of this path is being synced: the sync began and did not end yet

    Calls below other directories are passed on and not recorded.
    """

    def __init__(self, inner: Disk, root: Path, *, background: bool = False) -> None:
        super().__init__(inner, background=background)
        self.operations: list[Operation] = []
        self.order = threading.RLock()
        self.meanwhile: Callable[[Path], object] | None = None
        self.base: Tree = tree_of(inner, root)
        self._root = root
        self._nodes = 1  # numbers given so far
        self._syncs = 0
        self._names: dict[int, dict[str, int]] = {ROOT: {}}  # of each directory
        self._foreign: set[Path] = set()  # directories that a library writes to by itself
        self._shadows: dict[int, bytes] = {}
        self._lent: dict[int, File] = {}  # files whose descriptor was given away
        for number, parent, name, content in numbered(self.base):
            self._nodes = number + 1
            self._names[parent][name] = number
            if content is None:
                self._names[number] = {}

    def promise(self, fsynced: int, written: int, issued: int) -> None:
        """Note what callers believe from now on."""
        with self.order:
            self.operations.append(Promised(fsynced, written, issued))

    def trace(self, about: dict[str, Any], units: list[Unit]) -> Trace:
        """The record so far, as a trace."""
        with self.order:
            return Trace(about, self.base, units, list(self.operations))

    # --- names and numbers

    def _find(self, path: Path) -> int | None:
        """The number of a path below the root; None if it is elsewhere or does not exist."""
        try:
            parts = path.relative_to(self._root).parts
        except ValueError:
            return None
        at = ROOT
        for part in parts:
            found = self._names.get(at, {}).get(part)
            if found is None:
                return None
            at = found
        return at

    def node_of(self, path: Path) -> int | None:
        """The number of a file, for code that notes an operation on it. None if it is not recorded."""
        with self.order:
            return self._find(path)

    def _named(self, path: Path, *, directory: bool = False) -> int | None:
        """[order] The number of a path that exists on the inner disk now; its creation is noted if it is new."""
        found = self._find(path)
        if found is not None:
            return found
        parent = self._find(path.parent)
        if parent is None:
            return None
        number = self._nodes
        self._nodes += 1
        self._names[parent][path.name] = number
        if directory:
            self._names[number] = {}
        self.operations.append((Mkdir if directory else Create)(number, parent, path.name))
        return number

    def _unnamed(self, path: Path) -> None:
        """[order] Note that a name was removed."""
        number, parent = self._find(path), self._find(path.parent)
        if number is not None and parent is not None:
            self._names[parent].pop(path.name)
            self.operations.append(Unlink(number, parent, path.name))

    # --- files that a library writes to by itself

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold up every other operation, with all earlier writes of such libraries noted."""
        with self.order:
            self.observe()
            yield

    def observe(self) -> None:
        """[order] Note what such libraries did since the last look."""
        for directory in self._foreign:
            if self._find(directory) is not None and self._inner.kind(directory) is not None:
                self._observe_directory(directory)
        for number, file in self._lent.items():
            self._observe_content(number, file.pread(file.size(), 0))

    def changed(self, path: Path) -> tuple[int, list[tuple[int, bytes]]]:
        """[order] (size, pages that differ from the shadow) of a file; they count as noted from now on."""
        number = self._find(path)
        assert number is not None, f"{path} is not recorded"
        return self._changed(number, recipe.read(self._inner, path))

    def shadow_bytes(self, node: int) -> int:
        """[order] The size of a shadow."""
        return len(self._shadows.get(node, b""))

    def _observe_directory(self, directory: Path) -> None:
        names = self._inner.listdir(directory)
        number = self._find(directory)
        assert number is not None
        for name in [each for each in self._names[number] if each not in names]:
            self._unnamed(directory / name)
        for name in names:
            path = directory / name
            if self._inner.kind(path) is Kind.FILE:
                node = self._named(path)
                assert node is not None
                self._observe_content(node, recipe.read(self._inner, path))

    def _observe_content(self, number: int, content: bytes) -> None:
        size = len(self._shadows.get(number, b""))
        now, pages = self._changed(number, content)
        if now < size:
            self.operations.append(Size(number, now))
        for offset, page in pages:
            self.operations.append(Write(number, offset, page))
            size = max(size, offset + len(page))
        if now > size:
            self.operations.append(Size(number, now))

    def _changed(self, number: int, content: bytes) -> tuple[int, list[tuple[int, bytes]]]:
        shadow = self._shadows.get(number, b"")
        if shadow == content:
            return len(content), []
        pages = []
        for offset in range(0, len(content), PAGE):
            page = content[offset : offset + PAGE]
            old = shadow[offset : offset + PAGE]
            if page != old.ljust(len(page), b"\0"):  # a hole reads as zeros and was not written
                pages.append((offset, page))
        self._shadows[number] = content
        return len(content), pages

    def _wrote(self, number: int, offset: int, data: bytes) -> None:
        """[order] Note our own write. A shadow knows it, so it is not taken for a library's."""
        self.operations.append(Write(number, offset, data))
        shadow = self._shadows.get(number)
        if shadow is not None:
            head = shadow[:offset].ljust(offset, b"\0")
            self._shadows[number] = head + data + shadow[offset + len(data) :]

    def _resized(self, number: int, size: int) -> None:
        """[order] Note our own change of a file's size."""
        self.operations.append(Size(number, size))
        shadow = self._shadows.get(number)
        if shadow is not None:
            self._shadows[number] = shadow[:size].ljust(size, b"\0")

    def _lend(self, number: int, file: File) -> None:
        """[order] A program got the file's descriptor and may write through it."""
        if number not in self._shadows:
            self._shadows[number] = file.pread(file.size(), 0)
        self._lent[number] = file

    def _returned(self, number: int) -> None:
        """[order] The descriptor is about to be closed."""
        self.observe()
        self._lent.pop(number, None)

    def sync(self, node: int | None, path: Path, call: Callable[[], None]) -> None:
        """Sync with `call`. The lock is free while it runs."""
        if node is None:
            call()
            return
        with self.held():
            number = self._syncs
            self._syncs += 1
            self.operations.append(SyncBegin(number, node))
        meanwhile = self.meanwhile
        if meanwhile is not None:
            meanwhile(path)
        call()
        with self.order:
            self.operations.append(SyncEnd(number))

    def synced(self, node: int, start: int = 0, end: int = -1) -> None:
        """[order] Note a sync of these bytes that a library made, begun and ended now."""
        self.operations.append(SyncBegin(self._syncs, node, start, end))
        self.operations.append(SyncEnd(self._syncs))
        self._syncs += 1

    # --- the disk

    def open(self, path: Path, *, write: bool = False) -> File:
        with self.held():
            return self._recorded(path, self._inner.open(path, write=write))

    def create(self, path: Path) -> File:
        with self.held():
            file = self._inner.create(path)
            number = self._find(path)
            if number is not None:
                self._resized(number, 0)
            else:
                self._named(path)
            return self._recorded(path, file)

    def lock(self, path: Path) -> File | None:
        with self.held():
            file = self._inner.lock(path)
            if file is not None:
                self._named(path)
            return file and self._recorded(path, file)

    def hold(self, path: Path, *, shared: bool) -> File | None:
        with self.held():
            file = self._inner.hold(path, shared=shared)
            return file and self._recorded(path, file)

    def rename(self, source: Path, target: Path) -> None:
        with self.held():
            self._inner.rename(source, target)
            self._renamed(source, target)

    def move(self, source: Path, target: Path) -> None:
        with self.held():
            self._inner.move(source, target)
            self._renamed(source, target)

    def _renamed(self, source: Path, target: Path) -> None:
        number, old, new = (self._find(path) for path in (source, source.parent, target.parent))
        if number is None or old is None or new is None:
            assert number is None and new is None, f"{source} left the recorded directory"
            return
        self._names[old].pop(source.name)
        self._names[new][target.name] = number
        self.operations.append(Rename(number, old, source.name, new, target.name))

    def unlink(self, path: Path) -> None:
        with self.held():
            self._inner.unlink(path)
            self._unnamed(path)

    def mkdir(self, path: Path) -> None:
        with self.held():
            self._inner.mkdir(path)
            self._named(path, directory=True)

    def rmdir(self, path: Path) -> None:
        with self.held():
            self._inner.rmdir(path)
            self._unnamed(path)

    def sync_directory(self, path: Path) -> None:
        self.sync(self.node_of(path), path, lambda: self._inner.sync_directory(path))

    def beneath(self, path: Path) -> tuple[Disk, Path] | None:
        """This disk again, if the inner disk is the operating system: it goes on recording beside the library."""
        if not self._beneath(path):
            return None
        with self.order:
            self._foreign.add(path)
        return self, path

    def _recorded(self, path: Path, file: File) -> File:
        number = self._find(path)
        return file if number is None else RecordingFile(self, path, number, file)


class RecordingFile(PassingFile):
    """A `disk.interface.File` of a RecordingDisk."""

    def __init__(self, disk: RecordingDisk, path: Path, node: int, inner: File) -> None:
        super().__init__(path, inner)
        self._disk = disk
        self._node = node

    def write(self, offset: int, data: bytes) -> None:
        self._write(self._inner.write, offset, data)

    def _append(self, offset: int, data: bytes) -> None:
        self._write(self._inner.append, offset, data)

    def _write(self, write: Callable[[int, bytes], None], offset: int, data: bytes) -> None:
        disk = self._disk
        with disk.held():
            try:
                write(offset, data)
            except OSError:
                # An unknown part was written. The file tells which.
                data = self._inner.pread(len(data), offset)
                raise
            finally:
                disk._wrote(self._node, offset, bytes(data))

    def fill(self, start: int, end: int) -> int:
        disk = self._disk
        with disk.held():
            reached = self._inner.fill(start, end)
            if reached > start:
                disk._wrote(self._node, start, bytes(reached - start))
            return reached

    def truncate(self, size: int) -> None:
        disk = self._disk
        with disk.held():
            self._inner.truncate(size)
            disk._resized(self._node, size)

    def extend(self, size: int) -> None:
        disk = self._disk
        with disk.held():
            before = self._inner.size()
            self._inner.extend(size)
            if before < size:
                disk._resized(self._node, size)

    def fileno(self) -> int:
        number = self._inner.fileno()
        with self._disk.order:
            self._disk._lend(self._node, self._inner)
        return number

    def fdatasync(self) -> None:
        self._disk.sync(self._node, self._path, self._inner.fdatasync)

    def fsync(self) -> None:
        self._disk.sync(self._node, self._path, self._inner.fsync)

    def close(self) -> None:
        with self._disk.order:
            if self._node in self._disk._lent:
                self._disk._returned(self._node)
        super().close()
