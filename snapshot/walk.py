"""Walk: read and check every row of a checkpoint file, in a child process.

LMDB trusts its file: damage in it can kill or hang the process that maps it. So the child checks the structure first,
whatever an earlier check found, and reads a damaged file without LMDB. An unreadable medium can still kill the child;
its death is then reported as a finding. The child is `python -m tidelog.snapshot.walk FOLDER`. It writes to its
standard output, one JSON object per line:

    {"rows": n}                      n rows were read so far
    {"text": ..., "stream": ..., "block": ..., "first": ..., "last": ...}     a finding
    {"done": n}                      the last line: the child ended by itself, after n rows

The checks: the structure (snapshot/rows/structure.py); rows ascend, match their checksums and decode; the numbers of
keys and expiries match the row META; each key's stream exists and each stream has a key; the pages of a stream follow
each other; blocks match their own checksums; the counts of nodes and entries match; the groups and the chunks of
pending entries are those that are named; the three orders of a group agree.
"""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from io import BufferedReader
from operator import lt
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack

from tidelog.aof.errors import AofError
from tidelog.aof.identity import DATA
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.engine import ids, rowkeys
from tidelog.engine.errors import CorruptBlock, echo
from tidelog.engine.groups.group import LostGroup
from tidelog.engine.keys import keyrow
from tidelog.engine.streams.frozen_stream import load_stream
from tidelog.engine.streams.node import highest_live
from tidelog.engine.streams.pages import ColdPages, Page
from tidelog.snapshot.child import start_child
from tidelog.snapshot.errors import CheckpointError, DamagedCheckpoint
from tidelog.snapshot.rows.environment import ColdRows, Environment, open_environment
from tidelog.snapshot.rows.meta import Meta
from tidelog.snapshot.rows.rownames import row_name
from tidelog.snapshot.rows.seal import opened
from tidelog.snapshot.walk_pending import pending_adds_up

COMMAND: tuple[str, ...] = ("-m", "tidelog.snapshot.walk")
SILENT_S = 120.0  # a child that writes nothing for this long counts as hung and is killed
PIPE_BYTES: Final = 64 << 10
TELL_ROWS: Final = 1000
TELL_S: Final = 0.2  # the shortest time between two progress lines
FINDINGS_MAX: Final = 1000
# memory limit of the child, because a damaged length could ask for any amount
MEMORY_BYTES: Final = 4 << 30

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


class WalkFinding(NamedTuple):
    """One fault.

    text     the fault in words, with the file and the place
    stream   number of the stream concerned, or None
    block    ordinal of the node in it, or None
    first    first ID of the unreadable range, or None
    last     last ID of the unreadable range, or None
    """

    text: str
    stream: int | None = None
    block: int | None = None
    first: str | None = None
    last: str | None = None

    def __str__(self) -> str:
        return self.text


def _silent(what: str, nbytes: int) -> AbstractContextManager[Callable[[int], None]]:
    return nullcontext(lambda done: None)


def walk(disk: Disk, folder: Path, progress: Progress = _silent) -> Iterator[WalkFinding]:
    """Let a child process read every row of the checkpoint in `folder`. Yield its findings; none if it is sound.

    progress   opened with the size of the file in bytes. It is advanced by rows, so it is approximate
    Raises CheckpointError if no child can be started or the disk lies in memory; FileNotFoundError if there is no file.
    """
    place = disk.beneath(folder)
    if place is None:
        raise CheckpointError(
            f"{folder}: checkpoints need a real disk, and this one is simulated in memory"
        )
    disk, folder = place
    path = folder / DATA
    size = recipe.size(disk, path)
    child = start_child((*COMMAND, str(folder)), path)
    with progress("walking", size) as advance:
        yield from _listen(child, path, size, advance)


def _listen(
    child: subprocess.Popen[bytes], path: Path, size: int, advance: Callable[[int], None]
) -> Iterator[WalkFinding]:
    said = _Said(child)
    done = False
    try:
        for line in said.lines():
            told: dict[str, Any] = json.loads(line)
            if "text" in told:
                yield WalkFinding(**told)
            elif "rows" in told:
                advance(told["rows"])
            else:
                done = True
    except ValueError as error:
        yield WalkFinding(
            f"{path}: the process that read the file sent an invalid result ({error})"
        )
    finally:
        if not done:
            child.kill()
        status = child.wait()
        said.close()
    if not done:
        yield WalkFinding(f"{path}: {_death(status, said.hung, said.errors)}")
    else:
        advance(size)


class _Said:
    """The output of a child.

    errors   its standard error
    hung     it wrote nothing for SILENT_S, and was killed
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        assert isinstance(child.stdout, BufferedReader) and isinstance(child.stderr, BufferedReader)
        self._out, self._err = child.stdout, child.stderr
        self.errors = b""
        self.hung = False

    def lines(self) -> Iterator[bytes]:
        """The lines of its standard output, as they come."""
        rest = b""
        with selectors.DefaultSelector() as selector:
            for pipe in (self._out, self._err):
                selector.register(pipe, selectors.EVENT_READ, pipe)
            while selector.get_map():
                ready = selector.select(SILENT_S)
                if not ready:
                    self.hung = True
                    self._child.kill()
                for key, _ in ready:
                    data = key.data.read1(PIPE_BYTES)
                    if not data:
                        selector.unregister(key.data)
                    elif key.data is self._err:
                        self.errors += data
                    else:
                        *lines, rest = (rest + data).split(b"\n")
                        yield from lines
        if rest:
            yield rest

    def close(self) -> None:
        """Close the pipes."""
        self._out.close()
        self._err.close()


def _death(status: int, hung: bool, errors: bytes) -> str:
    if hung:
        return (
            f"the process that read the file hung for {SILENT_S:.0f} s and was ended; perhaps pages refer to each "
            "other in a circle"
        )
    if status < 0:
        name = signal.Signals(-status).name
        return (
            f"the process that read the file was killed by {name}; perhaps pages contradict each other or cannot be "
            "read"
        )
    last = errors.decode(errors="replace").strip().rpartition("\n")[2]
    return f"the process that read the file ended too early ({last or status})"


# --- the child


class _Walker:
    """Runs all checks of one file, in two passes: row by row, then stream by stream."""

    def __init__(self, path: Path, rows: ColdRows, tell: Callable[[dict[str, Any]], None]) -> None:
        self.path, self.rows, self._tell = path, rows, tell
        self.meta: Meta | None = None
        self.kinds: Counter[bytes] = Counter()
        self.seen: Counter[bytes] = Counter()
        self.keys: Counter[int] = Counter()
        self.expiring: Counter[int] = Counter()
        self.expiries: Counter[int] = Counter()
        self.streams: dict[int, bytes] = {}  # their keys, by number
        self.rows_of: Counter[bytes] = Counter()  # rows per stream and per group, by key prefix
        self.told = time.monotonic()
        self.found = 0
        self.done = 0

    def find(self, text: str, stream: int | None = None, **more: Any) -> None:
        self.found += 1
        if self.found <= FINDINGS_MAX:
            key = None if stream is None else self.streams.get(stream)
            where = "" if key is None else f"key {echo(key)!r}, "
            self._tell(WalkFinding(f"{self.path}: {where}{text}", stream, **more)._asdict())

    def check(self, environment: Environment) -> None:
        """Check the structure of the file and report its fault. If it is damaged, rows are then read without LMDB."""

        def tell() -> bool:
            self.tell_rows()
            return False

        try:
            environment.check(tell)
        except DamagedCheckpoint as error:
            self.find(f"byte {error.offset}: {error.reason}")

    def run(self) -> None:
        if not self.rows.number():
            return  # the first checkpoint was cut short
        self.pass_rows()
        if self.meta is None:
            self.find(f"{row_name(rowkeys.META)} is missing")
        else:
            for table, keys, expires in self.meta.tables["tables"]:
                self.compare(f"table {table}", "keys", self.keys.pop(table, 0), keys)
                self.compare(
                    f"table {table}", "rows of expiry times", self.expiries.get(table, 0), expires
                )
                self.compare(
                    f"table {table}", "keys that expire", self.expiring.get(table, 0), expires
                )
            for table in self.keys:
                self.find(f"table {table} has keys, but belongs to no database")
        for number in sorted(self.streams):
            self.stream(number)
        for kind, name in _KINDS.items():
            extra = self.kinds[kind] - self.seen[kind]
            if extra > 0 and not self.found:
                self.find(f"{extra} rows of {name} belong to no stream or group")

    def compare(self, where: str, what: str, there: int, told: int) -> None:
        if there != told:
            self.find(
                f"{where}: the file has {there} {what}, but the row that describes the checkpoint says {told}"
            )

    # --- row by row

    def pass_rows(self) -> None:
        # Read KEY rows first, so that findings in other rows can name the key of the stream.
        after = bytes([rowkeys.KEY[0] + 1])
        for start, stop in ((rowkeys.KEY, after), (b"", rowkeys.KEY), (after, None)):
            try:
                if not self.pass_range(start, stop):
                    return
            except CorruptBlock as error:
                self.find(str(error).removeprefix(f"{self.path}: "))

    def pass_range(self, start: bytes, stop: bytes | None) -> bool:
        """Check the rows from key `start` up to, not including, `stop`. Return False if the walk cannot continue."""
        before = b""
        # `values` does not verify values. If a row fails its checksum, report it and skip it.
        for key, value in self.rows.values(start):
            if key <= before or key < start:
                self.find(
                    f"{row_name(key)} comes after {row_name(before)}: the pages are linked wrongly"
                )
                return False
            if stop is not None and key >= stop:
                break
            before = key
            self.done += 1
            if self.done % TELL_ROWS == 0:
                self.tell_rows()
            kind = key[:1]
            if kind in _COUNTED:
                self.rows_of[key[:_STREAM_BYTES]] += 1
                if kind == rowkeys.CHUNK:
                    self.rows_of[key[:_GROUP_BYTES]] += 1
            try:
                self.row(key, opened(self.path, key, value))
            except CorruptBlock as error:
                self.broken(key, str(error).removeprefix(f"{self.path}: "))
            except (ValueError, TypeError, KeyError, AofError) as error:
                self.broken(key, f"{row_name(key)} cannot be read: {error}")
        return True

    def tell_rows(self) -> None:
        now = time.monotonic()
        if now - self.told >= TELL_S:
            self.told = now
            self._tell({"rows": self.done})

    def broken(self, key: bytes, text: str) -> None:
        kind = key[:1]
        stream = int.from_bytes(key[1:9], "big") if kind in _OF_STREAMS else None
        first = None
        if kind in (rowkeys.PAGE, rowkeys.DATA):
            first = ids.text(int.from_bytes(key[9:25], "big")).decode()
        self.find(text, stream, first=first)

    def row(self, key: bytes, payload: bytes) -> None:
        kind = key[:1]
        self.kinds[kind] += 1
        if kind == rowkeys.META:
            self.meta = Meta.unpack(self.path, payload)
        elif kind == rowkeys.KEY:
            table = int.from_bytes(key[1:5], "big")
            name, (expire_at, held_kind, held) = keyrow.unpack(payload)
            self.keys[table] += 1
            if rowkeys.key_row(table, name) != key:
                self.find(f"{row_name(key)} holds another key, {name!r}")
            if expire_at != keyrow.NO_EXPIRY:
                self.expiring[table] += 1
                if self.rows.get(rowkeys.expiry_row(table, expire_at, name)) != name:
                    self.find(
                        f"table {table}, key {name!r}: the row of its expiry at {expire_at} is missing"
                    )
            if held_kind == rowkeys.KIND_STREAM:
                if held in self.streams:
                    self.find(f"stream {held} has two keys; one is {name!r}", held)
                self.streams[held] = name
        elif kind == rowkeys.EXPIRY:
            table = int.from_bytes(key[1:5], "big")
            self.expiries[table] += 1
            if rowkeys.expiry_row(table, rowkeys.expiry_ms(key), payload) != key:
                self.find(f"{row_name(key)} holds another key, {payload!r}")
        elif kind not in _KINDS:
            self.find(f"{row_name(key)} is of an unknown kind")

    # --- stream by stream

    def stream(self, number: int) -> None:
        try:
            self.entries(number)
        except CorruptBlock as error:
            self.find(str(error).removeprefix(f"{self.path}: "), number)
        except (ValueError, TypeError, KeyError, IndexError, AssertionError) as error:
            self.find(f"stream {number} contradicts itself: {error!r}", number)
        for kind in _COUNTED:
            self.seen[kind] += self.rows_of.get(kind + number.to_bytes(8, "big"), 0)
        self.tell_rows()

    def entries(self, number: int) -> None:
        try:
            stream = load_stream(self.rows, number)
        except CorruptBlock as error:
            if self.rows.get(rowkeys.stream_row(number)) is None:
                text = f"stream {number} has a key, but its row is missing"
                raise CorruptBlock(text) from error
            self.seen[rowkeys.STREAM] += 1
            raise
        self.seen[rowkeys.STREAM] += 1
        length = nodes = 0
        before = -1
        cold = stream.cold
        for page, at, deleted in cold.between(0, ids.MAX) if cold is not None else ():
            assert cold is not None
            nodes += 1
            length += page.counts[at] - deleted.bit_count()
            what, last_live = _of_node(cold, page, at, deleted, before)
            if what is not None:
                self.find_in_node(number, page, at, what)
            before = last_live
        if stream.tail_ids:
            tail = stream.tail_node()
            nodes += 1
            length += tail.live
            if tail.first <= before or not all(map(lt, stream.tail_ids, stream.tail_ids[1:])):
                self.find(f"stream {number}, open node: the IDs are not in ascending order", number)
        if length != stream.length:
            self.find(
                f"stream {number}: it has {length} entries, but its row says {stream.length}",
                number,
            )
        if nodes != stream.nodes():
            self.find(
                f"stream {number}: it has {nodes} nodes, but its row says {stream.nodes()}", number
            )
        pages = self.rows_of.get(rowkeys.page_prefix(number), 0)
        data = self.rows_of.get(rowkeys.data_prefix(number), 0)
        if pages != data:
            self.find(
                f"stream {number}: it has {pages} pages of nodes, but the entries of {data} pages",
                number,
            )
        for group in stream.groups.values():
            if isinstance(group, LostGroup):
                self.find(group.damage.removeprefix(f"{self.path}: "), number)
            else:
                self.group(number, group)
        groups = self.rows_of.get(rowkeys.group_prefix(number), 0)
        if groups != len(stream.groups):
            self.find(
                f"stream {number}: it has {groups} groups, but its row says {len(stream.groups)}",
                number,
            )

    def find_in_node(self, number: int, page: Page, at: int, what: str | CorruptBlock) -> None:
        ordinal = page.ordinal + at
        first, last = (ids.text(each[at]).decode() for each in (page.firsts, page.lasts))
        if isinstance(what, CorruptBlock):
            text = str(what).removeprefix(f"{self.path}: ")
        else:
            text = f"stream {number}, block {ordinal} (IDs {first} to {last}): {what}"
        self.find(text, number, block=ordinal, first=first, last=last)

    def group(self, number: int, group: Any) -> None:
        row = self.rows.get(rowkeys.group_row(number, group.number))
        assert row is not None  # the group was loaded from it
        # A group's pending entries lie in chunks, once sorted by ID and once by time. The group's directory row
        # (engine.groups.frozen_pending) lists the serial numbers of the chunks of each order.
        directory = msgpack.unpackb(row)[4]
        by_id, by_time, by_owner = directory[5:8]
        told = sum(len(order[1]) // 8 for order in (by_id, by_time))
        told += sum(len(order[2]) // 8 for order in by_owner if order is not None)
        there = self.rows_of.get(rowkeys.chunk_prefix(number, group.number), 0)
        where = f"stream {number}, group {group.name!r}"
        if there != told:
            self.find(
                f"{where}: it has {there} chunks of pending entries, but its row says {told}",
                number,
            )
        if pending_adds_up(self.rows, number, group.number, directory):
            return
        try:
            group.pending.check()  # slower; its AssertionError says what is wrong
        except AssertionError as error:
            self.find(
                f"{where}: its pending entries contradict each other"
                + (f": {error}" if str(error) else ""),
                number,
            )


_KINDS: Final = {
    rowkeys.STREAM: "streams",
    rowkeys.PAGE: "pages of nodes",
    rowkeys.DATA: "entries of pages",
    rowkeys.GROUP: "groups",
    rowkeys.CHUNK: "pending entries",
}
_OF_STREAMS: Final = frozenset(_KINDS)
_COUNTED: Final = _OF_STREAMS - {rowkeys.STREAM}
_STREAM_BYTES: Final = len(rowkeys.page_prefix(0))  # length of a key's prefix up to the stream
_GROUP_BYTES: Final = len(rowkeys.chunk_prefix(0, 0))


def _of_node(
    cold: ColdPages, page: Page, at: int, deleted: int, before: int
) -> tuple[str | CorruptBlock | None, int]:
    """Check a node. Return its fault, None if there is none, and the ID of its last live entry.

    before: the ID of the last live entry before the node. Deleted slots at the end of a node may have greater IDs than
    the next node, because after XSETID these IDs can be given again.
    """
    # for a damaged node the result is its first ID, because no greater ID of the node is certain
    first = page.firsts[at]
    try:
        found = cold.block(page, at).decoded()
    except CorruptBlock as error:
        return error, first
    dms, seqs = found.dms, found.seqs
    ends = found.id_at(0), found.id_at(found.count - 1), found.count
    if ends != (first, page.lasts[at], page.counts[at]):
        return "its entries are not those that its page lists", first
    if any(each is not None and len(each) != found.count for each in (dms, seqs, found.shape_of)):
        return "it does not hold as many entries as it says", first
    ascend = True
    if dms is not None:
        # Compare the columns, because building the IDs would cost ten times as much.
        slots: list[Any] = dms if seqs is None else list(zip(dms, seqs))
        ascend = all(map(lt, slots, slots[1:]))
    last_live = found.id_at(highest_live(deleted, found.count))
    return (None if ascend and first > before else "the IDs are not in ascending order"), last_live


def _limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dump: the child's death is expected
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(most, MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def main(folder: Path) -> int:
    """Run the child: walk the checkpoint in `folder` and write the findings to standard output. Returns 0."""
    _limit()

    def tell(what: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    walk_here(folder, tell)
    return 0


def walk_here(folder: Path, tell: Callable[[dict[str, Any]], None]) -> None:
    """Walk the checkpoint in `folder` in this process, which damage may end. `tell` gets what a child would write."""
    walker = None
    try:
        disk = RealDisk()
        disk.guard(folder)
        environment = open_environment(disk, folder, read_only=True)
        environment.mistrusts = True
        rows = ColdRows(environment)
        walker = _Walker(environment.path, rows, tell)
        walker.check(environment)
        walker.run()
        rows.close()
        environment.close()
    except (AofError, OSError, MemoryError) as error:
        tell(
            WalkFinding(
                str(error) or f"{folder / DATA}: a value does not fit into memory"
            )._asdict()
        )
    except Exception as error:  # from LMDB, or from decoding damaged bytes
        tell(WalkFinding(f"{folder / DATA} cannot be read to its end: {error!r}")._asdict())
    tell({"done": 0 if walker is None else walker.done})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
