"""Notes: the log of the preloaded recorder (record.c), read as the operations of a trace.

     0      4              8               12        16      24   32       40       48
    +------+--------------+---------------+---------+-------+----+--------+--------+------+------+------+
    | kind | first length | second length | process | inode | at | number | length | path | path | data |
    +------+--------------+---------------+---------+-------+----+--------+--------+------+------+------+

All numbers have the byte order of the machine; the log never leaves it. `kind` counts from 1 in the order of NAMES.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tidelog.crash.errors import BenchError
from tidelog.crash.trace import (
    ROOT,
    Create,
    Link,
    Mkdir,
    Operation,
    Rename,
    Size,
    SyncBegin,
    SyncEnd,
    Tree,
    Unlink,
    Write,
    numbered,
)

HEADER: Final = struct.Struct("=IIIIQqqQ")
assert HEADER.size == 48
RANGE: Final = struct.Struct("=qq")
# fmt: off
NAMES: Final = (
    "seen", "create", "write", "size", "rename", "unlink", "mkdir", "link", "sync_begin", "sync_end", "told", "mapped",
    "unseen",
)
# fmt: on


class Note(NamedTuple):
    """One note of record.c."""

    kind: str
    process: int
    inode: int
    at: int
    number: int
    first: str
    second: str
    data: bytes


def notes_in(log: bytes) -> Iterator[Note]:
    """The notes of a log. A note that was cut short, as by the end of its process, is left out."""
    at = 0
    while at + HEADER.size <= len(log):
        kind, first, second, process, inode, place, number, length = HEADER.unpack_from(log, at)
        at += HEADER.size
        if at + first + second + length > len(log):
            return
        if not 1 <= kind <= len(NAMES):
            raise BenchError(f"the log of the preloaded recorder has a note of kind {kind}")
        middle, end = at + first, at + first + second
        yield Note(
            NAMES[kind - 1],
            process,
            inode,
            place,
            number,
            log[at:middle].decode("utf-8", "surrogateescape"),
            log[middle:end].decode("utf-8", "surrogateescape"),
            log[end : end + length],
        )
        at = end + length


class Recorded:
    """The operations of a program below a directory that held `base` before.

    operations   of the trace, without promises
    mapped       files that it wrote through a mapping, whose order between two calls is not known
    unseen       what it did that a trace cannot hold
    """

    def __init__(self, base: Tree) -> None:
        self.operations: list[Operation] = []
        self.mapped: set[str] = set()
        self.unseen: set[str] = set()
        self._names: dict[int, dict[str, int]] = {ROOT: {}}  # of each directory
        self._files: set[int] = set()
        self._nodes = 1  # numbers given so far
        self._of_inode: dict[int, int] = {}
        self._syncs = 0
        # (process, number there) -> numbers of syncs of the trace
        self._running: dict[tuple[int, int], list[int]] = {}
        self._linked: set[int] = set()
        self._do: dict[str, Callable[[Note], None]] = {
            name: getattr(self, f"_{name}") for name in NAMES if name != "told"
        }
        for number, parent, name, content in numbered(base):
            self._nodes = number + 1
            self._names[parent][name] = number
            if content is None:
                self._names[number] = {}
            else:
                self._files.add(number)

    def add(self, note: Note) -> None:
        """Add one note, which is not `told`."""
        self._do[note.kind](note)

    def _find(self, path: str) -> int | None:
        at = ROOT
        for part in filter(None, path.split("/")):
            found = self._names.get(at, {}).get(part)
            if found is None:
                return None
            at = found
        return at

    def _place(self, path: str) -> tuple[int, str] | None:
        """(directory, name) of a path, None if the directory is not known."""
        parent, _, name = path.rpartition("/")
        found = self._find(parent)
        return None if found is None or found not in self._names else (found, name)

    def _made(self, note: Note, *, directory: bool) -> None:
        place = self._place(note.first)
        if place is None:
            self.unseen.add(f"what lies in the directory of {note.first}")
            return
        number = self._nodes
        self._nodes += 1
        self._of_inode[note.inode] = number
        self._names[place[0]][place[1]] = number
        if directory:
            self._names[number] = {}
            self.operations.append(Mkdir(number, *place))
        else:
            self._files.add(number)
            self.operations.append(Create(number, *place))

    def _create(self, note: Note) -> None:
        self._made(note, directory=False)

    def _mkdir(self, note: Note) -> None:
        self._made(note, directory=True)

    def _seen(self, note: Note) -> None:
        found = self._find(note.first)
        if found is not None and found in self._files:
            self._of_inode[note.inode] = found
        elif found is None:
            self.unseen.add(f"the creation of {note.first}")
            self._made(note, directory=False)

    def _write(self, note: Note) -> None:
        node = self._of_inode.get(note.inode)
        if node is not None:
            self.operations.append(Write(node, note.at, note.data))

    def _size(self, note: Note) -> None:
        node = self._of_inode.get(note.inode)
        if node is not None:
            self.operations.append(Size(node, note.at))

    def _rename(self, note: Note) -> None:
        old, new, node = self._place(note.first), self._place(note.second), self._find(note.first)
        if node is None:
            return  # nothing that a trace holds: a socket, or a pipe
        if old is None or new is None or node in self._linked:
            self.unseen.add(f"the rename of {note.first}")
            return
        del self._names[old[0]][old[1]]
        self._names[new[0]][new[1]] = node
        self.operations.append(Rename(node, *old, *new))

    def _unlink(self, note: Note) -> None:
        place, node = self._place(note.first), self._find(note.first)
        if place is not None and node is not None:
            del self._names[place[0]][place[1]]
            self.operations.append(Unlink(node, *place))

    def _link(self, note: Note) -> None:
        place, node = self._place(note.first), self._of_inode.get(note.inode)
        if place is None or node is None:
            self.unseen.add(f"the link {note.first}")
            return
        self._linked.add(node)
        self._names[place[0]][place[1]] = node
        self.operations.append(Link(node, *place))

    def _sync_begin(self, note: Note) -> None:
        if note.inode == 0:
            nodes = [*self._names, *self._files]
        else:
            node = self._of_inode.get(note.inode)
            if node is None and note.at:
                node = self._find(note.first)
            nodes = [] if node is None else [node]
        numbers = self._running[note.process, note.number] = []
        for node in nodes:
            numbers.append(self._syncs)
            self.operations.append(SyncBegin(self._syncs, node, *RANGE.unpack(note.data)))
            self._syncs += 1

    def _sync_end(self, note: Note) -> None:
        for number in self._running.pop((note.process, note.number)):
            self.operations.append(SyncEnd(number))

    def _mapped(self, note: Note) -> None:
        self.mapped.add(note.first)

    def _unseen(self, note: Note) -> None:
        self.unseen.add(note.first)
