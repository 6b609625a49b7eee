"""States: what a power cut may leave of a disk, at any operation of a trace.

    for cut in cuts(trace):            the moments, one after each operation
        cut.count                      how many legal states there are
        for state in cut.states(rng):  all of them where there are few, else drawn by strategy
            cut.image(state)           the disk that it leaves

The rules are those of POSIX, without the favours of one file system. Independently of each other:

    a sector       each 512-byte sector that was written after the last sync that covers it has its content at that
                   sync, the one now, or one in between. A sector that was never durable before can also read as zeros,
                   or as the old content of its block: the file's own before it was cut, or that of a removed file
    a size         the one at the last sync, the one now, or one in between, whatever the sectors are
    a name         each create, rename and unlink since the last sync of its directory happened or did not. A rename
                   is one change, also between two directories; there it is durable with the new directory

A sync that did not end made nothing durable. One that ended covers the operations before its beginning.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import product
from typing import Final, NamedTuple

from tidelog.crash.trace import (
    ROOT,
    Create,
    Link,
    Mkdir,
    Operation,
    Promised,
    Rename,
    Size,
    SyncBegin,
    SyncEnd,
    Trace,
    Tree,
    Unlink,
    Write,
    numbered,
)

SECTOR: Final = 512
PAGE_SECTORS: Final = 8
EXHAUSTIVE_MAX: Final = 4096  # a moment with no more states than this has all of them tried
REMOVED: Final = 3  # of the files removed last, how many may show through in new blocks

# The time of the content that the last sync left. The content of an old block has no time.
BEFORE: Final = -1
# For each choice of a cut, the number of the option.
State = tuple[int, ...]


class Option(NamedTuple):
    """One of the things that a power cut may leave in one place.

    times   the operations that wrote it, ascending; BEFORE among them if it is that of the last sync
    value   a sector's content, a file's size, or whether the names changed
    words   for people
    origin  of an old block, the number of the file it comes from, counted from the newest; -1 for anything else
    """

    times: tuple[int, ...]
    value: bytes | int
    words: str
    origin: int = -1


class Choice(NamedTuple):
    """One place, and what a power cut may leave there. The last option written is that of no power cut.

    node     of the file; for a name, of the file or directory that has it
    place    number of the sector; SIZE, or NAME minus the number of the change
    now      the number of the option without a power cut
    """

    node: int
    place: int
    options: tuple[Option, ...]
    now: int


SIZE: Final = -1
NAME: Final = -2


class _Change(NamedTuple):
    """A change of names. `gone` and `come` are (directory, name) or None."""

    time: int
    node: int
    gone: tuple[int, str] | None
    come: tuple[int, str] | None
    words: str

    @property
    def directory(self) -> int:
        """The directory whose sync makes it durable."""
        where = self.come or self.gone
        assert where is not None
        return where[0]


class _File:
    """A file: its content now, its content on the medium, and each sector's and size's versions since."""

    def __init__(self, data: bytes = b"") -> None:
        self.now = bytearray(data)
        self.medium = bytes(data)
        self.versions: dict[int, list[tuple[int, bytes]]] = {}
        self.sizes: list[tuple[int, int]] = []
        self.there: set[int] = set(range(-(-len(data) // SECTOR)))  # sectors with a durable block
        self.cut: dict[int, bytes] = {}  # sectors that were durable before the file was cut

    def write(self, time: int, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if end > len(self.now):
            self.now.extend(bytes(end - len(self.now)))
            self.sizes.append((time, end))
        self.now[offset:end] = data
        self._touched(time, offset, end)

    def resize(self, time: int, size: int) -> None:
        before = len(self.now)
        if size < before:
            del self.now[size:]
            self._touched(time, size, before)
        else:
            self.now.extend(bytes(size - before))
        if size != before:
            self.sizes.append((time, size))

    def _touched(self, time: int, start: int, end: int) -> None:
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            content = bytes(self.now[sector * SECTOR : (sector + 1) * SECTOR])
            self.versions.setdefault(sector, []).append((time, content.ljust(SECTOR, b"\0")))

    def at(self, sector: int) -> bytes:
        return self.medium[sector * SECTOR : (sector + 1) * SECTOR].ljust(SECTOR, b"\0")

    def synced(self, begun: int, start: int, end: int) -> None:
        """A sync of these bytes that began at operation `begun` has ended."""
        medium = bytearray(self.medium)
        for sector in list(self.versions):
            if end >= 0 and not start // SECTOR <= sector < -(-end // SECTOR):
                continue
            versions = self.versions[sector]
            durable = [content for time, content in versions if time < begun]
            if not durable:
                continue
            reach = (sector + 1) * SECTOR
            if len(medium) < reach:
                medium.extend(bytes(reach - len(medium)))
            medium[sector * SECTOR : reach] = durable[-1]
            self.there.add(sector)
            left = versions[len(durable) :]
            if left:
                self.versions[sector] = left
            else:
                del self.versions[sector]
        sizes = [size for time, size in self.sizes if time < begun]
        size = sizes[-1] if sizes and end < 0 else max(len(self.medium), end)
        if end < 0:
            self.sizes = self.sizes[len(sizes) :]
            if not sizes:
                size = len(self.medium)
        if end >= 0:
            # The bytes are durable, and so is a size with which they can be read: no older, smaller one comes back.
            self.sizes = [
                (time, at) for time, at in self.sizes if time >= begun or (at >= end and at != size)
            ]
        if size < len(self.medium):
            for sector in [each for each in self.there if each * SECTOR >= size]:
                self.cut[sector] = self.at(sector)
                self.there.discard(sector)
        self.medium = bytes(medium[:size].ljust(size, b"\0"))


class Disk:
    """The disk of a trace after some of its operations."""

    def __init__(self, base: Tree) -> None:
        self.time = 0
        self.promised = Promised(0, 0, 0)
        self.files: dict[int, _File] = {}
        self.names: dict[int, dict[str, int]] = {ROOT: {}}  # of each directory, now
        self.medium: dict[int, dict[str, int]] = {ROOT: {}}  # and on the medium
        self.changes: list[_Change] = []
        self.paths: dict[int, str] = {ROOT: ""}  # the last name of each file and directory
        self.removed: deque[bytes] = deque(maxlen=REMOVED)  # the newest first
        # For crash/ordered.py: the changes of names before this time are in the journal of a file system that has one,
        # and the time of the last durable change that gave a file its name.
        self.journaled = 0
        self.shown: dict[int, int] = {}
        self._syncs: dict[int, tuple[int, SyncBegin]] = {}
        for number, parent, name, content in numbered(base):
            self.names[parent][name] = self.medium[parent][name] = number
            self.paths[number] = self._path(parent, name)
            if content is None:
                self.names[number], self.medium[number] = {}, {}
            else:
                self.files[number] = _File(content)

    def _path(self, parent: int, name: str) -> str:
        return f"{self.paths[parent]}/{name}".lstrip("/")

    def step(self, operation: Operation) -> None:
        """Do one operation."""
        time = self.time
        self.time += 1
        match operation:
            case Write(node, offset, data):
                self.files[node].write(time, offset, data)
            case SyncBegin(sync):
                self._syncs[sync] = time, operation
            case SyncEnd(sync):
                begun, what = self._syncs.pop(sync)
                self._synced(begun, what)
            case Size(node, size):
                self.files[node].resize(time, size)
            case Promised():
                self.promised = operation
            case Create(node, parent, name):
                self.files[node] = _File()
                self._change(time, node, None, (parent, name), "creation")
            case Mkdir(node, parent, name):
                self.names[node], self.medium[node] = {}, {}
                self._change(time, node, None, (parent, name), "mkdir")
            case Link(node, parent, name):
                self._change(time, node, None, (parent, name), "link")
            case Unlink(node, parent, name):
                self._change(time, node, (parent, name), None, "removal")
            case Rename(node, parent, name, new_parent, new_name):
                words = f"rename of {self.paths[node]} to"
                self._change(time, node, (parent, name), (new_parent, new_name), words)

    def _change(
        self,
        time: int,
        node: int,
        gone: tuple[int, str] | None,
        come: tuple[int, str] | None,
        what: str,
    ) -> None:
        if come is not None:
            self.paths[node] = self._path(*come)
        words = (
            f"{what} {self.paths[node]}"
            if what.endswith(" to")
            else f"{what} of {self.paths[node]}"
        )
        change = _Change(time, node, gone, come, words)
        self.changes.append(change)
        _apply(self.names, change)

    def _synced(self, begun: int, what: SyncBegin) -> None:
        if self._has_metadata(what.node, begun):
            self.journaled = max(self.journaled, begun)
        if what.node in self.files:
            self.files[what.node].synced(begun, what.start, what.end)
            return
        before = _nodes(self.medium)
        left: list[_Change] = []
        for change in self.changes:
            if change.time < begun and change.directory == what.node:
                _apply(self.medium, change)
                if change.come is not None:
                    self.shown[change.node] = change.time
                if change.gone is not None and change.come is not None:
                    # The place that a rename gives the file replaces all earlier ones.
                    left = [each for each in left if each.node != change.node]
            else:
                left.append(change)
        self.changes = left
        # The blocks of a removed file may be used again once its removal is durable.
        for node in before - _nodes(self.medium) - _nodes(self.names):
            if node in self.files:
                self.removed.appendleft(self.files[node].medium)

    def _has_metadata(self, node: int, begun: int) -> bool:
        """Whether a journaling file system has changes of a file or directory that are not in its journal yet."""
        if node in self.files and any(time < begun for time, _ in self.files[node].sizes):
            return True
        return any(
            self.journaled <= change.time < begun and node in (change.node, change.directory)
            for change in self.changes
        )

    def numbers(self) -> dict[str, int]:
        """The number of each path that exists now."""
        found: dict[str, int] = {"": ROOT}

        def walk(directory: int, path: str) -> None:
            for name, node in self.names[directory].items():
                found[path + name] = node
                if node in self.names:
                    walk(node, f"{path}{name}/")

        walk(ROOT, "")
        return found

    def cut(self) -> Cut:
        """The states in which power may leave the disk now."""
        return Cut(self)


def _nodes(names: dict[int, dict[str, int]]) -> set[int]:
    return {node for directory in names.values() for node in directory.values()}


def _apply(names: dict[int, dict[str, int]], change: _Change) -> None:
    node, gone, come = change.node, change.gone, change.come
    if gone is not None and names[gone[0]].get(gone[1]) == node:
        del names[gone[0]][gone[1]]
    if come is None:
        return
    if gone is not None:
        # An earlier rename of the same file may be lost: its old name must not stay beside the new one.
        for directory in names.values():
            for name in [each for each, there in directory.items() if there == node]:
                del directory[name]
    names[come[0]][come[1]] = node


class Cut:
    """One moment of a trace at which power may go.

    time       how many operations were done
    promised   what callers believe then
    choices    all places that a power cut may leave in more than one way
    """

    def __init__(self, disk: Disk) -> None:
        self.time = disk.time
        self.promised = disk.promised
        self._disk = disk
        self._contents: dict[tuple[int, State], bytes] = {}
        choices = [
            Choice(
                change.node,
                NAME - number,
                (Option((BEFORE,), 0, "not done"), Option((change.time,), 1, "done")),
                1,
            )
            for number, change in enumerate(disk.changes)
        ]
        reach = _nodes(disk.medium) | _nodes(disk.names) | {c.node for c in disk.changes}
        self._of_file: dict[int, list[int]] = {}
        for node in sorted(reach & disk.files.keys()):
            of_file = _choices_of(node, disk.files[node], disk.removed)
            self._of_file[node] = list(range(len(choices), len(choices) + len(of_file)))
            choices += of_file
        self.choices: Sequence[Choice] = choices

    @property
    def count(self) -> int:
        """How many states there are. Some may leave the same image, as when a file has no name in them."""
        return math.prod(len(choice.options) for choice in self.choices)

    @property
    def whole(self) -> State:
        """The state without a power cut: everything is there. It is also what the end of a process leaves."""
        return tuple(choice.now for choice in self.choices)

    @property
    def least(self) -> State:
        """The state in which nothing that was not synced is there."""
        return self._up_to(BEFORE)

    def states(
        self, rng: random.Random, drawn: int, exhaustive_max: int = EXHAUSTIVE_MAX
    ) -> Iterator[State]:
        """All states if there are at most `exhaustive_max` of them, else up to `drawn` different ones."""
        if self.count <= exhaustive_max:
            yield from product(*(range(len(choice.options)) for choice in self.choices))
            return
        seen: set[State] = set()
        for _ in range(4 * drawn):
            if len(seen) == drawn:
                return
            state = self._draw(rng, len(seen))
            if state not in seen:
                seen.add(state)
                yield state

    def _draw(self, rng: random.Random, already: int) -> State:
        if already == 0:
            return self.whole
        if already == 1:
            return self._up_to(BEFORE)
        way = rng.randrange(8)
        if way <= 1:  # everything up to one moment
            return self._up_to(rng.randrange(self.time + 1))
        if way == 2:  # all but a few
            return self._mixed(rng, self.whole, self._up_to(BEFORE))
        if way == 3:  # a few alone
            return self._mixed(rng, self._up_to(BEFORE), self.whole)
        if way == 4:  # old blocks behind everything up to one moment
            return self._old_blocks(rng, self._up_to(rng.randrange(self.time + 1)))
        if way == 5:  # each page by itself, names and sizes as they are now
            return self._by_page(rng)
        if way == 6:  # a few lost, old blocks in their places
            return self._old_blocks(rng, self._mixed(rng, self.whole, self._up_to(BEFORE)))
        return tuple(rng.randrange(len(choice.options)) for choice in self.choices)

    def _up_to(self, time: int) -> State:
        return tuple(newest(choice, time) for choice in self.choices)

    def _mixed(self, rng: random.Random, most: State, few: State) -> State:
        picked = {rng.randrange(len(most)) for _ in range(rng.randint(1, 3))} if most else set()
        return tuple(few[i] if i in picked else most[i] for i in range(len(most)))

    def _old_blocks(self, rng: random.Random, state: State) -> State:
        origin = rng.randrange(REMOVED + 1)
        found = list(state)
        for i, choice in enumerate(self.choices):
            if state[i] != choice.now:
                old = (n for n, option in enumerate(choice.options) if option.origin == origin)
                found[i] = next(old, state[i])
        return tuple(found)

    def _by_page(self, rng: random.Random) -> State:
        times: dict[tuple[int, int], int] = {}
        found = []
        for choice in self.choices:
            if choice.place < 0:
                found.append(choice.now)
                continue
            page = choice.node, choice.place // PAGE_SECTORS
            time = times.setdefault(page, rng.randrange(BEFORE, self.time + 1))
            found.append(newest(choice, time))
        return tuple(found)

    def image(self, state: State) -> Tree:
        """The disk that a state leaves."""
        disk = self._disk
        names = {number: dict(inner) for number, inner in disk.medium.items()}
        for i, change in enumerate(disk.changes):
            if state[i]:
                _apply(names, change)
        tree: Tree = {}

        def walk(directory: int, path: str) -> None:
            for name, node in sorted(names[directory].items()):
                if node in disk.files:
                    tree[path + name] = self._content(node, state)
                else:
                    tree[path + name] = None
                    walk(node, f"{path}{name}/")

        walk(ROOT, "")
        return tree

    def _content(self, node: int, state: State) -> bytes:
        numbers = self._of_file[node]
        key = node, tuple(state[i] for i in numbers)
        found = self._contents.get(key)
        if found is not None:
            return found
        file = self._disk.files[node]
        content = bytearray(file.medium)
        size = len(content)
        for i in numbers:
            choice = self.choices[i]
            value = choice.options[state[i]].value
            if choice.place == SIZE:
                assert isinstance(value, int)
                size = value
                continue
            assert isinstance(value, bytes)
            at = choice.place * SECTOR
            if len(content) < at:
                content.extend(bytes(at - len(content)))
            content[at : at + SECTOR] = value
        found = self._contents[key] = bytes(content[:size].ljust(size, b"\0"))
        return found

    def path(self, node: int) -> str:
        """The last name of a file or directory."""
        return self._disk.paths[node] or "the directory of the store's directory"

    def has_block(self, choice: Choice) -> bool:
        """Whether the sector of a choice was durable in its file before."""
        return choice.place in self._disk.files[choice.node].there

    @property
    def journaled(self) -> int:
        """The changes of names before this operation are in the journal of a file system that has one."""
        return self._disk.journaled

    @property
    def shown(self) -> dict[int, int]:
        """For each file, the last durable change that gave it its name."""
        return self._disk.shown

    def words(self, state: State) -> list[str]:
        """In what the state differs from one without a power cut, one line for each place."""
        found = []
        for i, choice in enumerate(self.choices):
            if state[i] == choice.now:
                continue
            option = choice.options[state[i]]
            path = self._disk.paths[choice.node]
            if choice.place <= NAME:
                found.append(f"{self._disk.changes[NAME - choice.place].words} {option.words}")
            elif choice.place == SIZE:
                found.append(f"size of {path} {option.words}")
            else:
                found.append(f"sector {choice.place} of {path} {option.words}")
        return found


def newest(choice: Choice, time: int) -> int:
    """The number of the option that was there at `time`."""
    best, found = BEFORE - 1, 0
    for number, option in enumerate(choice.options):
        for each in option.times:
            if best < each <= time:
                best, found = each, number
    return found


def _choices_of(node: int, file: _File, removed: Sequence[bytes]) -> list[Choice]:
    found = []
    if file.sizes:
        sizes: list[tuple[int, bytes | int]] = [(BEFORE, len(file.medium)), *file.sizes]
        words = [f"{len(file.medium)}, as synced", *(str(size) for _, size in file.sizes)]
        found.append(_choice(node, SIZE, sizes, words, ()))
    for sector, versions in file.versions.items():
        before = "old" if sector in file.there else "zero"
        contents: list[tuple[int, bytes | int]] = [(BEFORE, file.at(sector)), *versions]
        words = [before, *(f"as at operation {time}" for time, _ in versions[:-1]), "new"]
        old = tuple(_old_blocks(file, sector, removed))
        found.append(_choice(node, sector, contents, words, old))
    return [choice for choice in found if len(choice.options) > 1]


def _choice(
    node: int,
    place: int,
    values: Sequence[tuple[int, bytes | int]],
    words: Sequence[str],
    old: Sequence[tuple[bytes, str]],
) -> Choice:
    """A choice between the different ones of (time, value), ascending, and those of old blocks."""
    found: dict[bytes | int, Option] = {}
    for (time, value), said in zip(values, words, strict=True):
        times = found[value].times if value in found else ()
        found[value] = Option((*times, time), value, said)
    for origin, (block, said) in enumerate(old):
        found.setdefault(block, Option((), block, said, origin))
    now = next(n for n, value in enumerate(found) if value == values[-1][1])
    return Choice(node, place, tuple(found.values()), now)


def _old_blocks(file: _File, sector: int, removed: Sequence[bytes]) -> Iterator[tuple[bytes, str]]:
    """The contents that a block may have had before it became this sector. None if the sector had a block already."""
    if sector in file.there:
        return
    yield file.cut.get(sector, bytes(SECTOR)), "as before the file was cut"
    at = sector * SECTOR
    for number, content in enumerate(removed, 1):
        block = content[at : at + SECTOR].ljust(SECTOR, b"\0")
        yield block, f"stale, of the file removed {number}. to last"


def joined(first: Trace, time: int, second: Trace) -> Trace:
    """The first `time` operations of one trace, then those of another that began with what the process left then.

    The process ended, and the page cache stayed: what was not synced before is not synced now.
    """
    disk = Disk(first.base)
    for operation in first.operations[:time]:
        disk.step(operation)
    there = disk.numbers()
    nodes = {ROOT: ROOT}
    for (number, *_), path in zip(numbered(second.base), second.base, strict=True):
        nodes[number] = there[path]
    beyond = 1 + max(disk.paths)
    syncs = 1 + max(
        (o.sync for o in first.operations[:time] if isinstance(o, SyncBegin)), default=-1
    )

    def of(number: int) -> int:
        return nodes.setdefault(number, beyond + number)

    operations: list[Operation] = list(first.operations[:time])
    for operation in second.operations:
        match operation:
            case (
                Create(node, parent, _)
                | Mkdir(node, parent, _)
                | Unlink(node, parent, _)
                | Link(node, parent, _)
            ):
                operations.append(operation._replace(node=of(node), parent=of(parent)))
            case Write(node) | Size(node):
                operations.append(operation._replace(node=of(node)))
            case Rename(node, parent, _, new_parent):
                operations.append(
                    operation._replace(node=of(node), parent=of(parent), new_parent=of(new_parent))
                )
            case SyncBegin(sync, node):
                operations.append(operation._replace(sync=syncs + sync, node=of(node)))
            case SyncEnd(sync):
                operations.append(SyncEnd(syncs + sync))
            case Promised():
                operations.append(operation)
    return Trace(second.about, first.base, second.units, operations)


def cuts(trace: Trace, after: int = 0) -> Iterator[Cut]:
    """The moment after each operation of a trace but the first `after`. Use one before you take the next."""
    disk = Disk(trace.base)
    for operation in trace.operations:
        disk.step(operation)
        if disk.time > after:
            yield disk.cut()


def cut_at(trace: Trace, time: int) -> Cut:
    """The moment after `time` operations."""
    disk = Disk(trace.base)
    for operation in trace.operations[:time]:
        disk.step(operation)
    return disk.cut()


def fingerprint(image: Tree) -> bytes:
    """A name for an image: equal images have equal names, in every process."""
    found = blake2b(digest_size=16)
    for path, content in image.items():
        head = f"{path}\0{-1 if content is None else len(content)}\0"
        found.update(head.encode())
        found.update(content or b"")
    return found.digest()
