"""A disk in memory that can lose power, and fail, at every operation.

The state after a power cut is drawn at random from what real disks and file systems do:

    a file's data     each 512-byte sector, or each 4 KiB page, written after the last sync has its content at
                      that sync (zeros if the file was shorter), its content now, or one in between,
                      independent of its neighbours. So writes are lost, torn and reordered, and leave holes
    a file's length   the one at the last sync, the one now, or one in between
    names             each create, rename and unlink after the directory's last sync happened or did not;
                      a rename is atomic

A failed fsync drops the unwritten pages, as Linux does: they are marked clean, the next fsync succeeds
although they are lost, and only `drop_cache` shows the content of the disk.

Operations call `before(operation, path)` first. There a test counts operations, takes images of a power
cut at this moment, or raises the OSError with which the operation fails.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.disk.interface import Disk
from tidelog.disk.plain import Kind
from tidelog.disk.real import RealDisk

SECTOR: Final = 512
PAGE_SECTORS: Final = 8
FILL_PIECE: Final = 16 << 10

Tree = dict[str, bytes | None]  # the content of a disk: path -> bytes, None for a directory


class _Inode:
    """A file: its content in the page cache, on the medium, and every version in between."""

    __slots__ = ("cache", "medium", "dirty", "lengths", "locked", "shared", "_one")

    def __init__(self, data: bytes = b"") -> None:
        self._one = threading.RLock()  # one thread may sync while another writes
        self.cache = bytearray(data)
        self.medium = bytes(data)
        # Maps a sector to (time, content) after each write to the sector since the last sync.
        self.dirty: dict[int, list[tuple[int, bytes]]] = {}
        self.lengths: list[tuple[int, int]] = []  # (time, length) after each change since then
        self.locked = False
        self.shared = 0  # how many open files hold its shared flock

    def write(self, time: int, offset: int, data: bytes) -> None:
        end = offset + len(data)
        with self._one:
            if end > len(self.cache):
                self.cache.extend(bytes(end - len(self.cache)))
                self.lengths.append((time, end))
            self.cache[offset:end] = data
            self._touched(time, offset, end)

    def truncate(self, time: int, size: int) -> None:
        with self._one:
            before = len(self.cache)
            if size < before:
                del self.cache[size:]
            else:
                self.cache.extend(bytes(size - before))
            self.lengths.append((time, size))
            self._touched(time, min(size, before), max(size, before))

    def _touched(self, time: int, start: int, end: int) -> None:
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            content = bytes(self.cache[sector * SECTOR : (sector + 1) * SECTOR])
            self.dirty.setdefault(sector, []).append((time, content.ljust(SECTOR, b"\0")))

    def synced(self) -> None:
        # Take what was written, not the cache: the cache may hold pages that a failed sync marked clean without writing
        # them.
        with self._one:
            self.medium = self._written()
            self.dirty.clear()
            self.lengths.clear()

    def _written(self) -> bytes:
        return self._merge(len(self.cache), lambda sector: self.dirty[sector][-1][1])

    def _merge(self, length: int, pick: Callable[[int], bytes | None]) -> bytes:
        """The medium's content with the picked version of each dirty sector, cut or extended to `length` bytes."""
        image = bytearray(self.medium[:length].ljust(length, b"\0"))
        for sector in self.dirty:
            content = pick(sector)
            if content is not None:
                image[sector * SECTOR : (sector + 1) * SECTOR] = content
        return bytes(image[:length])

    def dropped(self) -> None:
        """A sync failed: mark all pages clean, and leave the medium as it is."""
        with self._one:
            self.dirty.clear()
            self.lengths.clear()

    def forget(self) -> None:
        """Drop clean pages, so that the next read comes from the medium."""
        with self._one:
            self.cache = bytearray(self._written())

    def after_power_loss(self, rng: random.Random) -> bytes:
        with self._one:
            return self._after_power_loss(rng)

    def _after_power_loss(self, rng: random.Random) -> bytes:
        if not self.dirty and not self.lengths:
            return self.medium
        times = [versions[-1][0] for versions in self.dirty.values()]
        times += [time for time, _ in self.lengths]
        first, last = min(times), max(times)
        way = rng.randrange(6)
        if way == 0:  # all lost
            return self.medium
        if way == 1:  # all kept
            return self._written()
        if way == 2:  # everything up to one moment
            moment = rng.randint(first - 1, last)
            return self._merge(self._length_at(moment), lambda sector: self._at(sector, moment))
        lengths = [len(self.medium), *(length for _, length in self.lengths)]
        length = rng.choice(lengths) if rng.random() < 0.5 else len(self.cache)
        if way == 3:  # each sector independently
            return self._merge(
                length, lambda sector: self._at(sector, rng.randint(first - 1, last))
            )
        if way == 4:  # each page independently
            moments: dict[int, int] = {}

            def of_page(sector: int) -> bytes | None:
                moment = moments.setdefault(sector // PAGE_SECTORS, rng.randint(first - 1, last))
                return self._at(sector, moment)

            return self._merge(length, of_page)
        lost = (
            {rng.choice(list(self.dirty)) for _ in range(rng.randint(1, 3))} if self.dirty else ()
        )
        return self._merge(
            length, lambda sector: None if sector in lost else self._at(sector, last)
        )

    def _at(self, sector: int, moment: int) -> bytes | None:
        found = None
        for time, content in self.dirty[sector]:
            if time > moment:
                break
            found = content
        return found

    def _length_at(self, moment: int) -> int:
        length = len(self.medium)
        for time, then in self.lengths:
            if time > moment:
                break
            length = then
        return length


class _Move:
    """A move of a file or directory from one directory to another: one transaction of a journaling file system.

    A power cut takes back all of it or nothing. A sync of either directory makes it durable.
    """

    __slots__ = ("source", "gone", "target", "come", "node", "durable")

    def __init__(
        self,
        source: _Directory,
        gone: str,
        target: _Directory,
        come: str,
        node: _Inode | _Directory,
    ) -> None:
        self.source, self.gone, self.target, self.come, self.node = source, gone, target, come, node
        self.durable = False
        source.change(gone, None, node, self)
        target.change(None, come, node, self)

    def synced(self) -> None:
        self.durable = True
        _apply(self.source.medium, self.gone, None, self.node)
        _apply(self.target.medium, None, self.come, self.node)


class _Directory:
    """A directory: its current names, those on the medium, and the changes in between."""

    __slots__ = ("names", "medium", "changes")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.medium: dict[str, _Inode | _Directory] = {}
        # One tuple per change: (removed name or None, added name or None, file or directory, the move it is a part of)
        self.changes: list[tuple[str | None, str | None, _Inode | _Directory, _Move | None]] = []

    def change(
        self,
        gone: str | None,
        come: str | None,
        node: _Inode | _Directory,
        move: _Move | None = None,
    ) -> None:
        self.changes.append((gone, come, node, move))
        _apply(self.names, gone, come, node)

    def synced(self) -> None:
        for *_, move in self.changes:
            if move is not None:
                move.synced()
        self.medium = dict(self.names)
        self.changes.clear()

    def after_power_loss(
        self, rng: random.Random, moved: dict[_Move, bool]
    ) -> dict[str, _Inode | _Directory]:
        """`moved`: what this power cut leaves of each move, drawn by the first directory that has it."""
        if not self.changes:
            return self.medium
        names = dict(self.medium)
        way = rng.randrange(4)
        cut = rng.randint(0, len(self.changes))
        for i, (gone, come, node, move) in enumerate(self.changes):
            if move is not None:
                there = move.durable or moved.setdefault(move, rng.random() < 0.5)
            else:
                there = way == 0 or way == 1 and i < cut or way == 2 and rng.random() < 0.5
            if there:
                _apply(names, gone, come, node)
        return names


def _apply(
    names: dict[str, _Inode | _Directory],
    gone: str | None,
    come: str | None,
    node: _Inode | _Directory,
) -> None:
    if gone is not None and names.get(gone) is node:
        del names[gone]
    if come is not None:
        names[come] = node


class SimulatedFile:
    """A `disk.interface.File` of a SimulatedDisk."""

    def __init__(self, disk: SimulatedDisk, path: Path, inode: _Inode) -> None:
        self.path = path
        self.append: Callable[[int, bytes], None] = self._append
        self._disk = disk
        self._inode = inode
        self._mapped = 0
        self._open = True
        self._locks = False
        self._shares = False

    def size(self) -> int:
        return len(self._inode.cache)

    def next_data(self, offset: int) -> int | None:
        return offset if offset < len(self._inode.cache) else None

    def pread(self, length: int, offset: int) -> bytes:
        self._disk.operation("pread", self.path)
        return bytes(self._inode.cache[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self._write("write", offset, data)

    def _append(self, offset: int, data: bytes) -> None:
        if self._mapped:
            assert offset + len(data) <= self._mapped, "a store beyond the mapping"
        self._write("append", offset, data)

    def _write(self, operation: str, offset: int, data: bytes) -> None:
        assert self._open, f"{operation} to a closed {self.path}"
        try:
            time = self._disk.operation(operation, self.path)
        except OSError:
            # A failed write is short: write only a first part of the data, of random length.
            part = self._disk.rng.randint(0, len(data))
            self._inode.write(self._disk.tick(), offset, data[:part])
            raise
        self._inode.write(time, offset, data)

    def fill(self, start: int, end: int) -> int:
        while start < end:
            piece = min(end - start, FILL_PIECE)
            try:
                self._write("fill", start, bytes(piece))
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    break
                raise
            start += piece
        return start

    def map(self, length: int) -> None:
        self._disk.operation("map", self.path)
        assert length <= len(self._inode.cache), "a mapping beyond the end of its file"
        self._mapped = length

    def unmap(self) -> None:
        self._mapped = 0

    def truncate(self, size: int) -> None:
        assert not self._mapped, "a store into a mapping beyond the end of its file is SIGBUS"
        self._inode.truncate(self._disk.operation("truncate", self.path), size)

    def extend(self, size: int) -> None:
        if len(self._inode.cache) < size:
            self._inode.truncate(self._disk.operation("extend", self.path), size)

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor", str(self.path))

    def identity(self) -> tuple[int, int]:
        return 0, id(self._inode)

    def times(self) -> tuple[int, int]:
        return 0, 0  # only checkpoints call this method, and no checkpoint is on a simulated disk

    def fdatasync(self) -> None:
        self._sync("fdatasync")

    def fsync(self) -> None:
        self._sync("fsync")

    def _sync(self, operation: str) -> None:
        assert self._open, f"{operation} of a closed {self.path}"
        try:
            self._disk.operation(operation, self.path)
        except OSError:
            self._inode.dropped()
            raise
        self._inode.synced()

    def drop_cache(self) -> None:
        self._disk.operation("drop_cache", self.path)
        self._inode.forget()

    def close(self) -> None:
        self._mapped = 0
        if self._open:
            self.unlock()
        self._open = False

    def unlock(self) -> None:
        if self._locks:
            self._inode.locked = False
        if self._shares:
            self._inode.shared -= 1
        self._locks = self._shares = False

    def hold(self, *, shared: bool) -> bool:
        """Take the flock; False if another open file excludes it."""
        if self._inode.locked or (self._inode.shared and not shared):
            return False
        if shared:
            self._inode.shared += 1
            self._shares = True
        else:
            self._inode.locked = self._locks = True
        return True


class SimulatedDisk:
    """A `disk.interface.Disk` in memory. `seed` determines everything random.

    operations   (name, path) of every operation so far
    before       called with (name, path) before each operation takes effect
    real_root    a directory of the operating system that is `/` for libraries that access files themselves;
                 a simulated power cut does not affect it. None: such libraries have no directory
    """

    def __init__(self, seed: int = 0) -> None:
        # Use no threads, because with a thread the order of operations would not be deterministic.
        self.background = False
        self.rng = random.Random(seed)
        self.operations: list[tuple[str, Path]] = []
        self.before: Callable[[str, Path], object] | None = None
        self.real_root: Path | None = None
        self._time = 0
        self._root = _Directory()
        self._held: list[_Inode] = []  # every inode that was ever locked

    # --- for tests

    def power_loss(self, rng: random.Random) -> SimulatedDisk:
        """A possible state of the disk if power is cut now, drawn with `rng`."""
        image = SimulatedDisk(rng.getrandbits(32))
        files: dict[int, _Inode] = {}
        moved: dict[_Move, bool] = {}

        def copy(names: dict[str, _Inode | _Directory], target: _Directory) -> None:
            for name, node in names.items():
                if isinstance(node, _Directory):
                    inner = _Directory()
                    target.names[name] = inner
                    copy(node.after_power_loss(rng, moved), inner)
                else:
                    if id(node) not in files:
                        files[id(node)] = _Inode(node.after_power_loss(rng))
                    target.names[name] = files[id(node)]
            target.medium = dict(target.names)

        copy(self._root.after_power_loss(rng, moved), image._root)
        return image

    def kill(self) -> None:
        """Kill all processes: their locks are released, and unsynced writes stay in the page cache."""
        for inode in self._held:
            inode.locked = False
            inode.shared = 0
        self._held.clear()

    def killed(self) -> SimulatedDisk:
        """A fully durable copy of what the next process sees if this one is killed now."""
        return self.of(self.tree())

    def synced(self) -> SimulatedDisk:
        """The state of the disk if power is cut now and every unsynced change is lost."""
        image = SimulatedDisk()

        def copy(names: dict[str, _Inode | _Directory], target: _Directory) -> None:
            for name, node in names.items():
                if isinstance(node, _Directory):
                    inner = target.names[name] = _Directory()
                    copy(node.medium, inner)
                else:
                    target.names[name] = _Inode(node.medium)
            target.medium = dict(target.names)

        copy(self._root.medium, image._root)
        return image

    def tree(self) -> Tree:
        """All files and directories as the running system sees them."""
        found: Tree = {}

        def walk(directory: _Directory, path: Path) -> None:
            for name, node in directory.names.items():
                if isinstance(node, _Directory):
                    found[str(path / name)] = None
                    walk(node, path / name)
                else:
                    found[str(path / name)] = bytes(node.cache)

        walk(self._root, Path("/"))
        return found

    @classmethod
    def of(cls, tree: Tree, seed: int = 0) -> SimulatedDisk:
        """A disk that durably holds `tree`, in which parents come before their children."""
        disk = cls(seed)
        for name, content in tree.items():
            path = Path(name)
            directory = disk._directory(path.parent)
            node = _Directory() if content is None else _Inode(content)
            directory.names[path.name] = directory.medium[path.name] = node
        return disk

    def operation(self, name: str, path: Path) -> int:
        """Record an operation and call `before`. Returns the operation's time."""
        self.operations.append((name, path))
        if self.before is not None:
            self.before(name, path)
        return self.tick()

    def tick(self) -> int:
        self._time += 1
        return self._time

    # --- for the program under test

    def guard(self, root: Path) -> None:
        """No effect, since this disk has only plain files and directories."""

    def kind(self, path: Path) -> Kind | None:
        try:
            node = self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Kind.DIRECTORY if isinstance(node, _Directory) else Kind.FILE

    def open(self, path: Path, *, write: bool = False) -> SimulatedFile:
        self.operation("open", path)
        return SimulatedFile(self, path, self._file(path))

    def create(self, path: Path) -> SimulatedFile:
        time = self.operation("create", path)
        directory = self._directory(path.parent)
        node = directory.names.get(path.name)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        if node is None:
            node = _Inode()
            directory.change(None, path.name, node)
        else:
            node.truncate(time, 0)
        return SimulatedFile(self, path, node)

    def lock(self, path: Path) -> SimulatedFile | None:
        if path.name not in self._directory(path.parent).names:
            self.create(path)
        self.operation("lock", path)
        return self._held_file(path, shared=False)

    def hold(self, path: Path, *, shared: bool) -> SimulatedFile | None:
        self.operation("hold", path)
        return self._held_file(path, shared=shared)

    def _held_file(self, path: Path, *, shared: bool) -> SimulatedFile | None:
        file = SimulatedFile(self, path, self._file(path))
        if not file.hold(shared=shared):
            return None
        self._held.append(file._inode)
        return file

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent
        self.operation("rename", target)
        directory = self._directory(source.parent)
        directory.change(source.name, target.name, self._node(source))

    def move(self, source: Path, target: Path) -> None:
        self.operation("move", target)
        node, directory = self._node(source), self._directory(target.parent)
        there = directory.names.get(target.name)
        if isinstance(there, _Directory) and there.names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", str(target))
        _Move(self._directory(source.parent), source.name, directory, target.name, node)

    def unlink(self, path: Path) -> None:
        self.operation("unlink", path)
        self._directory(path.parent).change(path.name, None, self._file(path))

    def mkdir(self, path: Path) -> None:
        self.operation("mkdir", path)
        parent = self._directory(path.parent)
        if path.name in parent.names:
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        parent.change(None, path.name, _Directory())

    def rmdir(self, path: Path) -> None:
        self.operation("rmdir", path)
        node = self._directory(path)
        if node.names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", str(path))
        self._directory(path.parent).change(path.name, None, node)

    def listdir(self, path: Path) -> list[str]:
        self.operation("listdir", path)
        return sorted(self._directory(path).names)

    def exists(self, path: Path) -> bool:
        try:
            self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def sync_directory(self, path: Path) -> None:
        self.operation("sync_directory", path)
        self._directory(path).synced()

    def writable(self, path: Path) -> bool:
        return self.exists(path)

    def free(self, path: Path) -> int:
        return 1 << 40

    def capacity(self, path: Path) -> int:
        return 1 << 40

    def beneath(self, path: Path) -> tuple[Disk, Path] | None:
        if self.real_root is None:
            return None
        return RealDisk(), self.real_root / path.relative_to("/")

    def _node(self, path: Path) -> _Inode | _Directory:
        node: _Inode | _Directory = self._root
        for name in path.parts[1:]:
            if not isinstance(node, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            if name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            node = node.names[name]
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._node(path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
        return node

    def _file(self, path: Path) -> _Inode:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return node
