"""From a running Redis, key by key or as its replica.

--by dump    SCAN, and DUMP of each key. Each key is whole; keys that change meanwhile are as of different moments
--by psync   as a replica: the server's dump file as of one moment, and with --follow the commands after it
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, Final

from tidelog.api.queue.running.signals import Signals
from tidelog.client.address import Address
from tidelog.engine.integers import read_int64
from tidelog.engine.rdb.errors import RdbError
from tidelog.engine.rdb.file import NO_EXPIRY, dumped
from tidelog.engine.rdb.source import Source
from tidelog.tools import console
from tidelog.tools.failed import Refused
from tidelog.tools.importing.errors import of_rdb
from tidelog.tools.importing.filters import Filter
from tidelog.tools.importing.from_rdb import take_rdb
from tidelog.tools.importing.keys import Keys
from tidelog.tools.importing.link import Link, ServerError
from tidelog.tools.importing.pieces import PIECE_BYTES
from tidelog.tools.importing.replayed import Replaying
from tidelog.tools.importing.resp import commands

SCAN_COUNT: Final = b"256"
DUMPED_AT_ONCE: Final = 16  # payloads in memory together
TAKEN: Final = (b"stream", b"string")
SETTLE_S: Final = 0.05  # between two questions whether there is more
ACK_S: Final = 1.0


def take_dumps(place: Address, keys: Keys, wanted: Filter) -> None:
    """Take every key by DUMP. Raises Failed."""
    with Link(place) as link:
        for db, count in _databases(link):
            if not wanted.has_db(db):
                continue
            link.call(b"SELECT", b"%d" % db)
            with console.progress(f"importing database {db}", count) as advance:
                for names in _scanned(link):
                    _take_some(link, db, names, keys, wanted)
                    advance(len(names))


def _databases(link: Link) -> list[tuple[int, int]]:
    """(number, keys) of each database that has keys."""
    told = link.text(b"INFO", b"keyspace")
    found = re.findall(rb"^db(\d+):keys=(\d+)", told, re.M)
    return [(int(number), int(count)) for number, count in found]


def _scanned(link: Link) -> Iterator[list[bytes]]:
    cursor = b"0"
    while True:
        found = link.call(b"SCAN", cursor, b"COUNT", SCAN_COUNT)
        match found:
            case [bytes() as cursor, list() as names] if all(map(_is_text, names)):
                yield names
            case _:
                link.refuse(found)
        if cursor == b"0":
            return


def _take_some(link: Link, db: int, names: list[bytes], keys: Keys, wanted: Filter) -> None:
    chosen = []
    for name in dict.fromkeys(names):
        if not wanted.takes(db, name):
            keys.report.skipped += 1
        elif not keys.has(db, name):  # SCAN may return a key twice
            chosen.append(name)
    types = link.pipeline(*((b"TYPE", name) for name in chosen))
    taken = []
    for name, kind in zip(chosen, types, strict=True):
        if isinstance(kind, ServerError):
            raise Refused(f"{link.place} refused TYPE: {kind.text}")
        if kind in TAKEN:
            taken.append(name)
        elif kind != b"none":
            size = link.pipeline((b"MEMORY", b"USAGE", name))[0]
            shown = kind.decode(errors="replace") if isinstance(kind, bytes) else "unknown"
            keys.report.leave(shown, db, name, size if isinstance(size, int) else 0)
    for at in range(0, len(taken), DUMPED_AT_ONCE):
        some = taken[at : at + DUMPED_AT_ONCE]
        payloads = link.pipeline(*((b"DUMP", name) for name in some))
        left = link.pipeline(*((b"PTTL", name) for name in some))
        now_ms = time.time_ns() // 1_000_000
        for name, payload, ttl in zip(some, payloads, left, strict=True):
            for command, reply in (("DUMP", payload), ("PTTL", ttl)):
                if isinstance(reply, ServerError):
                    raise Refused(f"{link.place} refused {command}: {reply.text}")
            if payload is None:
                continue  # it is gone
            if not (_is_text(payload) and isinstance(ttl, int)):
                link.refuse([payload, ttl])
            _put(link.place, db, name, payload, now_ms + ttl if ttl >= 0 else NO_EXPIRY, keys)


def _is_text(reply: Any) -> bool:
    return isinstance(reply, bytes)


def _put(place: Address, db: int, name: bytes, payload: bytes, expire_at: int, keys: Keys) -> None:
    try:
        kind, source = dumped(payload)
        keys.value(db, name, kind, expire_at, source)
    except RdbError as error:
        raise of_rdb(f"{place}, key {name.decode(errors='backslashreplace')}", error) from error


# --- as a replica


def take_psync(
    place: Address, keys: Keys, wanted: Filter, *, follow: bool, until_caught_up: bool
) -> None:
    """Take the server's dump file, and with `follow` the commands after it until Ctrl-C.

    until_caught_up   end as soon as everything is taken that the server has
    """
    with Link(place) as link:
        link.call(b"REPLCONF", b"listening-port", b"0")
        offset = _begin(link)
        nbytes = _image_bytes(link)
        left = nbytes

        with console.progress("importing", nbytes, size=True) as advance:

            def pull() -> bytes:
                nonlocal left
                piece = link.some(min(left, PIECE_BYTES)) if left else b""
                left -= len(piece)
                advance(len(piece))
                return piece

            source = Source(pull, nbytes)
            try:
                take_rdb(source, keys, wanted)
            except RdbError as error:
                raise of_rdb(f"the dump of {place}", error) from error
        if left:
            link.exactly(left)
        if follow or until_caught_up:
            _Following(link, keys, wanted, offset, until_caught_up).run()


def _begin(link: Link) -> int:
    """Ask for a full copy. Returns the offset at which the commands after it begin."""
    link.send((b"PSYNC", b"?", b"-1"))
    reply = b""
    while not reply:  # an empty line says that the server is still there
        reply = link.line()
    words = reply.split()
    offset = read_int64(words[2]) if len(words) == 3 else None
    if words[0] != b"+FULLRESYNC" or offset is None:
        shown = reply.decode(errors="replace")
        raise Refused(
            f"{link.place} gives no copy to a replica: {shown}. Use --by dump, which needs SCAN, DUMP and PTTL only"
        )
    return offset


def _image_bytes(link: Link) -> int:
    line = b""
    while not line:
        line = link.line()
    if line[:1] != b"$" or not line[1:].isdigit():
        shown = line.decode(errors="replace")
        raise Refused(f"{link.place} sends no dump file of a stated length: {shown}. Use --by dump")
    return int(line[1:])


class _Following:
    """Takes the commands behind the image, and tells the server how far it is, so that it keeps the connection."""

    def __init__(
        self, link: Link, keys: Keys, wanted: Filter, offset: int, until_caught_up: bool
    ) -> None:
        self._link = link
        self._base = offset
        self._replaying = Replaying(keys, wanted, time.time_ns() // 1_000_000)
        self._until_caught_up = until_caught_up
        self._source = Source(self._pull)
        self._whole = 0  # everything before this offset of the source was taken
        self._stops: list[str] = []  # the signals that asked to end
        self._acked = 0.0

    def run(self) -> None:
        # SIGTERM or Ctrl-C ends the import after the command that is being taken.
        with Signals(self._stops.append):
            try:
                for offset, args in commands(self._source):
                    if args[0].upper() == b"REPLCONF":
                        self._acknowledge()
                    else:
                        self._replaying.take(offset, args)
                    self._whole = self._source.offset
            except RdbError as error:
                raise of_rdb(f"the commands of {self._link.place}", error) from error
        self._replaying.drop_open()

    def _pull(self) -> bytes:
        """The next bytes; b"" to end, which only happens between two commands."""
        while True:
            between = self._source.offset == self._whole and self._replaying.open_at is None
            if between and self._stops:
                return b""
            if time.monotonic() - self._acked >= ACK_S:
                self._acknowledge()
            try:
                piece = self._link.ready(PIECE_BYTES, SETTLE_S)
            except TimeoutError:
                if between and self._until_caught_up and self._has_all():
                    return b""
                continue
            return piece

    def _acknowledge(self) -> None:
        self._acked = time.monotonic()
        self._link.send((b"REPLCONF", b"ACK", b"%d" % (self._base + self._source.offset)))

    def _has_all(self) -> bool:
        """Whether the server has nothing more, asked over a connection of its own."""
        with Link(self._link.place) as link:
            told = link.text(b"INFO", b"replication")
        found = re.search(rb"^master_repl_offset:(\d+)", told, re.M)
        return found is None or int(found[1]) <= self._base + self._source.offset
