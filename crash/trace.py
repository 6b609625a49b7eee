"""A trace: everything that one life of a store did to its disk, and what it promised in between, as one file.

The file is the only thing that an exploration needs, so a finding can be replayed anywhere. Its layout, all numbers
little-endian:

     0       8         12         20            24                       24+length
    +-------+---------+----------+-------------+-------------------------+
    | magic | version | length   | crc32c      | body                    |
    | 8     | u32     | u64      | u32         | zlib of msgpack         |
    +-------+---------+----------+-------------+-------------------------+

length  of the body; the file ends with it
crc32c  of the body
body    [about, base, units, [operation, ...]]; each operation is [its number below, its fields...]

Files and directories are called by number: 0 is the directory that holds the store, those of `base` follow in its
order, and each one created later gets the next number. Their names change, the numbers do not.
"""

from __future__ import annotations

import platform
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
import msgpack

from tidelog.crash.errors import BadTrace
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.plain import Kind
from tidelog.engine.crc32c import crc32c
from tidelog.store.version import __version__

MAGIC: Final = b"tlTRACE\n"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sIQI")
assert HEADER.size == 24

ROOT: Final = 0  # number of the directory that holds the store

# path below ROOT -> content, None for a directory; parents before children
Tree = dict[str, bytes | None]


class Mkdir(NamedTuple):
    """A directory was made."""

    node: int
    parent: int
    name: str


class Create(NamedTuple):
    """An empty file was created."""

    node: int
    parent: int
    name: str


class Write(NamedTuple):
    """Bytes were written to a file, through a descriptor or a mapping. The file grows if they end behind its end."""

    node: int
    offset: int
    data: bytes


class Size(NamedTuple):
    """A file was cut, or extended with a hole."""

    node: int
    size: int


class Rename(NamedTuple):
    """A file or directory changed its name, perhaps between directories. A file of the new name is replaced."""

    node: int
    parent: int
    name: str
    new_parent: int
    new_name: str


class Unlink(NamedTuple):
    """A name of a file, or of an empty directory, was removed."""

    node: int
    parent: int
    name: str


class Link(NamedTuple):
    """A file got one more name. A file with two names is not renamed: the states would lose the other one."""

    node: int
    parent: int
    name: str


class SyncBegin(NamedTuple):
    """A sync of a file or directory began. Only the operations before this one become durable when it ends.

    start, end   the bytes that it concerns; end is -1 for all. A write through a synchronous descriptor is a write
                 and a sync of its own bytes
    """

    sync: int
    node: int
    start: int = 0
    end: int = -1


class SyncEnd(NamedTuple):
    """The sync of this number returned without an error."""

    sync: int


class Promised(NamedTuple):
    """From here on callers believe this much. All three count units from the beginning of the store.

    fsynced   units that were acknowledged as safe from a power cut
    written   units that were acknowledged as safe from the end of the process
    issued    units that may be in the store at most: a call may have been cut short
    """

    fsynced: int
    written: int
    issued: int


Operation = Mkdir | Create | Write | Size | Rename | Unlink | SyncBegin | SyncEnd | Promised | Link

# The numbers of the file format. Never renumber them.
NUMBERS: Final[dict[int, Callable[..., Operation]]] = {
    1: Mkdir,
    2: Create,
    3: Write,
    4: Size,
    5: Rename,
    6: Unlink,
    7: SyncBegin,
    8: SyncEnd,
    9: Promised,
    10: Link,
}
_NUMBER_OF: Final = {kind: number for number, kind in NUMBERS.items()}

Unit = list[list[Any]]  # model operations; see crash/model.py


class Trace(NamedTuple):
    """One recorded life.

    about        seed, policy, workload and versions, to be shown
    base         the content of the disk before the first operation, all of it durable
    units        what the store was asked to do, in order; `Promised` counts them
    operations   in the order in which they took effect
    """

    about: dict[str, Any]
    base: Tree
    units: list[Unit]
    operations: list[Operation]


def versions() -> dict[str, str]:
    """The versions that a reader of a trace may want to know."""
    major, minor, patch = lmdb.version()[:3]
    return {
        "tidelog": __version__,
        "python": platform.python_version(),
        "lmdb": f"{major}.{minor}.{patch}",
    }


def pack(trace: Trace) -> bytes:
    """A trace as the content of a file."""
    operations = [[_NUMBER_OF[type(each)], *each] for each in trace.operations]
    packed: bytes = msgpack.packb([trace.about, trace.base, trace.units, operations])
    body = zlib.compress(packed, 1)
    return HEADER.pack(MAGIC, VERSION, len(body), crc32c(body)) + body


def unpack(data: bytes, name: str) -> Trace:
    """The trace in the content of a file that is called `name`. Raises BadTrace."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise BadTrace(f"{name} is not a trace of tidelog crash")
    _, version, length, crc = HEADER.unpack_from(data)
    if version != VERSION:
        raise BadTrace(
            f"{name} is a trace of version {version}, and this tidelog reads version {VERSION}; "
            "replay it with the tidelog that made it"
        )
    body = data[HEADER.size :]
    if len(body) < length:
        raise BadTrace(
            f"{name} was cut: {length - len(body)} of {length + HEADER.size} bytes are missing; copy it again"
        )
    if len(body) > length:
        raise BadTrace(f"{name} has {len(body) - length} bytes behind its end; copy it again")
    if crc32c(body) != crc:
        raise BadTrace(f"{name} was changed: its checksum is wrong; copy it again")
    try:
        about, base, units, operations = msgpack.unpackb(zlib.decompress(body))
        return Trace(about, base, units, [_operation(*each) for each in operations])
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        # The checksum is right, so a program wrote exactly this.
        raise BadTrace(f"{name} was written wrongly ({error}); record it again") from error


def _operation(number: int, *fields: Any) -> Operation:
    return NUMBERS[number](*fields)


def save(disk: Disk, path: Path, trace: Trace) -> None:
    """Write a trace to a file. Raises OSError."""
    recipe.publish(disk, path, pack(trace))


def load(disk: Disk, path: Path) -> Trace:
    """Read a trace from a file. Raises BadTrace, OSError."""
    return unpack(recipe.read(disk, path), str(path))


def tree_of(disk: Disk, root: Path, most: int | None = None) -> Tree:
    """Everything below the directory `root`; of each file at most the first `most` bytes. Raises OSError."""
    found: Tree = {}

    def walk(path: Path, name: str) -> None:
        for each in disk.listdir(path):
            inner = f"{name}{each}"
            if disk.kind(path / each) is Kind.DIRECTORY:
                found[inner] = None
                walk(path / each, inner + "/")
            else:
                found[inner] = _read(disk, path / each, most)

    walk(root, "")
    return found


def _read(disk: Disk, path: Path, most: int | None) -> bytes:
    if most is None:
        return recipe.read(disk, path)
    file = disk.open(path)
    try:
        return file.pread(min(most, file.size()), 0)
    finally:
        file.close()


def lay(disk: Disk, root: Path, tree: Tree) -> None:
    """Write `tree` into the empty directory `root`, without syncs. Raises OSError."""
    for name, content in tree.items():
        if content is None:
            disk.mkdir(root / name)
            continue
        file = disk.create(root / name)
        try:
            file.write(0, content)
        finally:
            file.close()


def numbered(base: Tree) -> Sequence[tuple[int, int, str, bytes | None]]:
    """(number, number of its parent, name, content) of each file and directory of a base."""
    numbers = {"": ROOT}
    found = []
    for number, (path, content) in enumerate(base.items(), ROOT + 1):
        parent, _, name = path.rpartition("/")
        numbers[path] = number
        found.append((number, numbers[parent], name, content))
    return found
