"""manifest.json: the description of a snapshot. With it a copy that went wrong anywhere is detected.

    snapshots/00000000000000004711/     named after P, the last LSN that it holds
        data.mdb                        compact LMDB copy of one transaction (snapshot/rows/environment.py)
        manifest.json                   this file, UTF-8, sorted keys

    {
      "tidelog": "snapshot",
      "format": 1,
      "uuid": "000102...",              of the store
      "position": {                     where in the log it was taken, as the copy has it
        "lsn": 4711,                    P
        "crc": "89abcdef",              header checksum of the frame that ends at P
        "segment": 1,                   first LSN of the segment that holds P
        "offset": 12345,                in it, behind that frame
        "incarnation": "00000000000000a1"
      },
      "epochs": [{"number": 1, "incarnation": "00000000000000a1", "lsn": 1}],
      "now_ms": 1700000000000,          time of the newest unit in it
      "created_ms": 1700000000123,      wall clock
      "data": {"bytes": 8192, "blake2b": "..."},
      "counts": {
        "databases": [{"db": 0, "keys": 2, "expires": 0}],
        "streams": 1, "entries": 3, "groups": 1, "pending": 0,
        "largest": [{"db": 0, "key": "orders", "entries": 3, "groups": 1, "pending": 0}]
      },
      "check": "..."                    BLAKE2b of all of the above, so that damage is told from wrong facts
    }

counts    without keys that had expired by the later of `now_ms` and `created_ms`, which the data still has; earlier
          versions counted them
blake2b   32 bytes, as 64 hex digits; `check` has 16 and is taken over the object without it, as `_canonical`
          writes it
largest   every stream, or the 10,000 with the most entries; without those whose key exceeds 1,024 bytes. A key
          is a string where it is UTF-8, else {"base64": "..."}

Reading is strict: an unknown field, a missing one or one of the wrong type is damage. A later format raises
NewerSnapshot.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.aof.identity import SNAPSHOTS
from tidelog.aof.reading.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.aof.start import Start
from tidelog.disk.interface import Disk
from tidelog.engine.fast_path import fast_path
from tidelog.snapshot.errors import NewerSnapshot, NotASnapshot, SnapshotDamaged
from tidelog.snapshot.rows.meta import Meta

NAME: Final = "manifest.json"
UNFINISHED_COPY: Final = (
    "COPYING"  # a file in a directory that a snapshot is being copied to (snapshot/copying.py)
)
FORMAT: Final = 1
LARGEST_MAX: Final = 10_000
KEY_BYTES_MAX: Final = 1024
# largest size of a manifest: enough for ten thousand keys of 1 KiB in base64
BYTES_MAX: Final = 64 << 20
HASH_BYTES: Final = 32

_KIND: Final = "snapshot"
_CHECK_BYTES: Final = 16
_U64_MAX: Final = (1 << 64) - 1


class DatabaseCount(NamedTuple):
    """The counts of one database. Empty databases are not listed."""

    db: int
    keys: int
    expires: int


class StreamCount(NamedTuple):
    """The counts of one stream."""

    db: int
    key: bytes
    entries: int
    groups: int
    pending: int


class Counts(NamedTuple):
    """The counts of a snapshot. `largest` is sorted by entries, descending, then by database and key."""

    databases: tuple[DatabaseCount, ...]
    streams: int
    entries: int
    groups: int
    pending: int
    largest: tuple[StreamCount, ...]


class Manifest(NamedTuple):
    """The description of a snapshot: the content of its file manifest.json.

    Attributes:
        uuid: Of the store.
        position: Where in the log it was taken.
        epochs: The store's lives as a writer, each with its first LSN.
        now_ms: Time of the newest unit in it, Unix ms.
        created_ms: When it was made, Unix ms.
        data_bytes: Size of its data file.
        blake2b: Hash of its data file, hexadecimal.
        counts: How many keys, streams, entries, groups and pending entries it holds.
    """

    uuid: bytes
    position: Position
    epochs: tuple[Epoch, ...]
    now_ms: int
    created_ms: int
    data_bytes: int
    blake2b: str
    counts: Counts

    @property
    def lsn(self) -> int:
        """P, the last LSN in the snapshot."""
        return self.position.lsn

    @property
    def moment_ms(self) -> int:
        """The snapshot's own time, Unix ms: a key that had expired by then is not counted, and is in no table."""
        return max(self.now_ms, self.created_ms)

    @property
    def start(self) -> Start:
        """Where the log continues behind the snapshot."""
        return Start(*self.position, self.epochs, self.now_ms)


def render(manifest: Manifest) -> bytes:
    """The bytes of the file manifest.json."""
    counts = manifest.counts
    facts: dict[str, Any] = {
        "tidelog": _KIND,
        "format": FORMAT,
        "uuid": manifest.uuid.hex(),
        "position": {
            "lsn": manifest.position.lsn,
            "crc": f"{manifest.position.crc:08x}",
            "segment": manifest.position.segment,
            "offset": manifest.position.offset,
            "incarnation": f"{manifest.position.incarnation:016x}",
        },
        "epochs": [
            {"number": life.number, "incarnation": f"{life.incarnation:016x}", "lsn": life.lsn}
            for life in manifest.epochs
        ],
        "now_ms": manifest.now_ms,
        "created_ms": manifest.created_ms,
        "data": {"bytes": manifest.data_bytes, "blake2b": manifest.blake2b},
        "counts": {
            "databases": [row._asdict() for row in counts.databases],
            "streams": counts.streams,
            "entries": counts.entries,
            "groups": counts.groups,
            "pending": counts.pending,
            "largest": [row._asdict() | {"key": _key_text(row.key)} for row in counts.largest],
        },
    }
    facts["check"] = check_of(facts)
    return json.dumps(facts, sort_keys=True, indent=1).encode() + b"\n"


def check_of(facts: dict[str, Any]) -> str:
    """The value of `check`, 32 hex digits, for an object with these fields."""
    return blake2b(_canonical(facts), digest_size=_CHECK_BYTES).hexdigest()


def parse(path: Path | str, data: bytes) -> Manifest:
    """Parse the bytes of the manifest at `path`, which may be a URL.

    Raises NotASnapshot, SnapshotDamaged, NewerSnapshot.
    """
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SnapshotDamaged(path, f"the text is not valid JSON ({error})") from None
    if type(facts) is not dict or facts.get("tidelog") != _KIND:
        directory = path.parent if isinstance(path, Path) else path.rpartition("/")[0]
        raise NotASnapshot(directory, f"{NAME} is not a tidelog file, or its start is damaged")
    version = facts.get("format")
    if type(version) is int and version > FORMAT:
        raise NewerSnapshot(path, version, FORMAT)
    if version != FORMAT:
        raise SnapshotDamaged(
            path, f"the field 'format' is {version!r}, which no version of tidelog writes"
        )
    check = facts.pop("check", None)
    if check != check_of(facts):
        raise SnapshotDamaged(path, "the content does not match the checksum in the field 'check'")
    try:
        return _manifest(_Fields(facts, ""))
    except _Fault as fault:
        raise SnapshotDamaged(path, str(fault)) from None


def read(disk: Disk, directory: Path) -> Manifest:
    """Read the manifest of a snapshot's `directory`. Raises NotASnapshot, SnapshotDamaged, NewerSnapshot, OSError."""
    path = directory / NAME
    try:
        file = disk.open(path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotASnapshot(directory, _absence(disk, directory)) from None
    try:
        size = file.size()
        check_size(path, size)
        return parse(path, file.pread(size, 0))
    finally:
        file.close()


def check_size(path: Path | str, size: int) -> None:
    """Raise SnapshotDamaged if a manifest cannot have this many bytes. A damaged file may have any length."""
    if size > BYTES_MAX:
        raise SnapshotDamaged(
            path, f"the file has {size} bytes, but a manifest has at most {BYTES_MAX}"
        )


def lsn_of(name: str) -> int | None:
    """The LSN in the name of a snapshot's directory; None for any other name."""
    return int(name) if len(name) == 20 and name.isascii() and name.isdigit() else None


def check_name(path: Path | str, manifest: Manifest) -> None:
    """Raise SnapshotDamaged if the directory at `path` is named after another LSN.

    A copy may have any name that is not an LSN.
    """
    lsn = lsn_of(str(path).rpartition("/")[2])
    if lsn is not None and lsn != manifest.lsn:
        raise SnapshotDamaged(
            path, f"the manifest says LSN {manifest.lsn}, but the name of the directory says {lsn}"
        )


def check_data(data: Path | str, size: int | None, manifest: Manifest) -> None:
    """Raise SnapshotDamaged if the data file does not have the size that the manifest says. None: it is missing."""
    if size is None:
        raise SnapshotDamaged(data, "the file is missing")
    if size != manifest.data_bytes:
        raise SnapshotDamaged(
            data, f"the file has {size} bytes, but the manifest says {manifest.data_bytes}"
        )


def disagreement(manifest: Manifest, meta: Meta) -> str:
    """Describe the first contradiction between the manifest and the row META of the data; "" if there is none."""
    if meta.uuid != manifest.uuid:
        return f"the data belongs to store {meta.uuid.hex()}, but the manifest says {manifest.uuid.hex()}"
    if meta.position.lsn != manifest.lsn:
        return f"the data ends with LSN {meta.position.lsn}, but the manifest says {manifest.lsn}"
    if (meta.position, meta.epochs, meta.now) != (
        manifest.position,
        manifest.epochs,
        manifest.now_ms,
    ):
        return "the data was taken at another position of the log, or has other incarnations, than the manifest says"
    return ""


def _absence(disk: Disk, directory: Path) -> str:
    try:
        names = disk.listdir(directory)
    except FileNotFoundError:
        return "the directory does not exist"
    except NotADirectoryError:
        return "it is not a directory"
    return absence(names)


def absence(names: list[str]) -> str:
    """Say what a directory with these names is, if it is not a snapshot."""
    if UNFINISHED_COPY in names:
        return "it is an unfinished copy; run the same `tidelog snapshot copy` again"
    if SNAPSHOTS in names:
        return f"it is a store; its snapshots are in its folder {SNAPSHOTS}/"
    return f"it contains no file {NAME}" if names else "it is empty"


def _canonical(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def _key_text(key: bytes) -> Any:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key).decode("ascii")}


# --- strict reading


class _Fault(Exception):
    """A field is wrong; the message says how."""


class _Fields:
    """The fields of a JSON object, each taken once. `done` raises _Fault if one is left."""

    def __init__(self, facts: Any, place: str) -> None:
        if type(facts) is not dict:
            raise _Fault(f"{place or 'the text'} is not a JSON object")
        self._facts = dict(facts)
        self._place = f"{place}." if place else ""

    def take(self, name: str) -> Any:
        if name not in self._facts:
            raise _Fault(f"the field {self._place}{name} is missing")
        return self._facts.pop(name)

    def number(self, name: str) -> int:
        value = self.take(name)
        if type(value) is not int or not 0 <= value <= _U64_MAX:
            raise _Fault(
                f"{self._place}{name} is {value!r}, which is not a number in the allowed range"
            )
        return value

    def hex(self, name: str, nbytes: int) -> bytes:
        value = self.take(name)
        try:
            if type(value) is str and len(value) == 2 * nbytes and value == value.strip().lower():
                found = bytes.fromhex(value)
                if len(found) == nbytes:  # fromhex skips blanks between digits
                    return found
        except ValueError:
            pass
        raise _Fault(f"{self._place}{name} is not {2 * nbytes} hex digits")

    def key(self, name: str) -> bytes:
        value = self.take(name)
        if type(value) is str:
            return value.encode("utf-8", "surrogatepass")
        if type(value) is dict and list(value) == ["base64"] and type(value["base64"]) is str:
            try:
                return base64.b64decode(value["base64"], validate=True)
            except (binascii.Error, ValueError):
                pass
        raise _Fault(f"{self._place}{name} is not a key, neither as text nor as base64")

    def object(self, name: str) -> _Fields:
        return _Fields(self.take(name), f"{self._place}{name}")

    def rows(
        self,
        name: str,
        read: Callable[[_Fields], Any],
        plain: Callable[[Any], Any] | None = None,
    ) -> tuple[Any, ...]:
        """`plain` reads the items that it can read, faster than `read`, and returns None for the others."""
        value = self.take(name)
        if type(value) is not list:
            raise _Fault(f"{self._place}{name} is not a list")
        found = []
        for number, item in enumerate(value):
            row = None if plain is None else plain(item)
            if row is None:
                fields = _Fields(item, f"{self._place}{name}[{number}]")
                row = read(fields)
                fields.done()
            found.append(row)
        return tuple(found)

    def done(self) -> None:
        for name in self._facts:
            raise _Fault(f"the field {self._place}{name} is unknown")


def _manifest(fields: _Fields) -> Manifest:
    fields.take("tidelog")
    fields.take("format")
    position = fields.object("position")
    data = fields.object("data")
    counts = fields.object("counts")
    manifest = Manifest(
        uuid=fields.hex("uuid", 16),
        position=Position(
            position.number("lsn"),
            int.from_bytes(position.hex("crc", 4), "big"),
            position.number("segment"),
            position.number("offset"),
            int.from_bytes(position.hex("incarnation", 8), "big"),
        ),
        epochs=fields.rows("epochs", _epoch),
        now_ms=fields.number("now_ms"),
        created_ms=fields.number("created_ms"),
        data_bytes=data.number("bytes"),
        blake2b=data.hex("blake2b", HASH_BYTES).hex(),
        counts=Counts(
            databases=counts.rows("databases", _database),
            streams=counts.number("streams"),
            entries=counts.number("entries"),
            groups=counts.number("groups"),
            pending=counts.number("pending"),
            largest=counts.rows("largest", _stream, _plain_stream),
        ),
    )
    for part in (position, data, counts, fields):
        part.done()
    return manifest


def _epoch(fields: _Fields) -> Epoch:
    incarnation = int.from_bytes(fields.hex("incarnation", 8), "big")
    return Epoch(fields.number("number"), incarnation, fields.number("lsn"))


def _database(fields: _Fields) -> DatabaseCount:
    return DatabaseCount(fields.number("db"), fields.number("keys"), fields.number("expires"))


def _stream(fields: _Fields) -> StreamCount:
    return StreamCount(
        fields.number("db"),
        fields.key("key"),
        fields.number("entries"),
        fields.number("groups"),
        fields.number("pending"),
    )


_STREAM: Final = itemgetter(*StreamCount._fields)


@fast_path(
    of="snapshot.manifest:_stream",
    held_by="tests/snapshot/portable/test_portable_manifest.py::test_plain_counts_of_streams_are_those_field_by_field",
)
def _plain_stream(item: Any) -> StreamCount | None:
    """The counts of a stream whose key is text: four times as fast as field by field. None for any other item."""
    if type(item) is not dict or len(item) != len(StreamCount._fields):
        return None
    try:
        db, key, *counts = _STREAM(item)
        if type(key) is str and {type(db), *map(type, counts)} == {int}:
            if min(db, *counts) >= 0 and max(db, *counts) <= _U64_MAX:
                return StreamCount(db, key.encode("utf-8", "surrogatepass"), *counts)
    except KeyError:
        pass
    return None
