"""Seal: `_manifest.json` of an export. It is published last, so a directory that has it is whole.

    EXPORT/
        _manifest.json              this file, UTF-8, sorted keys
        _index.parquet              the nodes of the snapshot (spark/exports/index.py)
        entries/part-00000.parquet  a folder for each table
        _plan.json, _task-00000.json, _LOCK, _claim-IDENTITY-PROCESS     only while an export is being made

    {
      "tidelog": "export",
      "format": 1,
      "plan": "...",                    BLAKE2b of the plan, 16 bytes; the same command has the same plan
      "snapshot": {
        "path": "...",                  where it lay
        "uuid": "000102...",            of the store
        "position": {"lsn": 4711, "crc": "89abcdef", "segment": 1, "offset": 12345, "incarnation": "..."},
        "epochs": [{"number": 1, "incarnation": "...", "lsn": 1}],
        "now_ms": 1700000000000,
        "blake2b": "..."                of its data file
      },
      "since": null,                    or {"path", "lsn", "check"} of the export that this one continues
      "selection": {"db": "0", ...},    options that choose keys and entries, as given
      "shape": {"decode": "utf8", ...}, options that shape the columns of entries, as given
      "tables": {"entries": 2000},      rows of each
      "write": {"format": "parquet", "partition_by": []},
      "files": [{"name": "entries/part-00000.parquet", "table": "entries", "rows": 2000, "bytes": 81234,
                 "blake2b": "...", "ranges": {"stream": ["a", "b"], "id": ["1-0", "9-0"]}}],
      "created_ms": 1700000000123,
      "check": "..."                    BLAKE2b of all of the above, as in a snapshot's manifest
    }

`ranges` has the stream and ID of the first and last row, and is null for other tables than `entries`.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from tidelog.aof.reading.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.snapshot.manifest import Manifest, check_of
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.target import DAMAGED, EXPORT, Target, put, target_of, telling, written

NAME: Final = "_manifest.json"
FORMAT: Final = 1
_KIND: Final = "export"


class ExportFile(NamedTuple):
    """A file of an export. `ranges`: stream and ID of its first and last row, as JSON; None where there are none."""

    name: str
    table: str
    rows: int
    nbytes: int
    blake2b: str
    ranges: dict[str, Any] | None = None

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "table": self.table,
            "rows": self.rows,
            "bytes": self.nbytes,
            "blake2b": self.blake2b,
            "ranges": self.ranges,
        }

    @classmethod
    def of(cls, facts: dict[str, Any]) -> ExportFile:
        """The file with these facts. Raises KeyError, TypeError, ValueError."""
        name, table, rows, nbytes = (facts[key] for key in ("name", "table", "rows", "bytes"))
        if not (type(name) is str and type(table) is str and type(rows) is type(nbytes) is int):
            raise TypeError("files")
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"the file name {name!r} leads out of the export")
        return cls(name, table, rows, nbytes, str(facts["blake2b"]), facts["ranges"])


class Origin(NamedTuple):
    """The snapshot of an export."""

    path: str
    uuid: bytes
    position: Position
    epochs: tuple[Epoch, ...]
    now_ms: int
    blake2b: str

    @property
    def line(self) -> tuple[bytes, Position, tuple[Epoch, ...]]:
        """The part that `incremental.continues` compares."""
        return self.uuid, self.position, self.epochs


class Base(NamedTuple):
    """The export that an incremental one continues. `check` identifies it."""

    path: str
    lsn: int
    check: str


class Seal(NamedTuple):
    """The content of `_manifest.json`."""

    plan: str
    snapshot: Origin
    since: Base | None
    selection: dict[str, Any]
    shape: dict[str, Any]
    tables: dict[str, int]
    write: dict[str, Any]
    files: tuple[ExportFile, ...]
    created_ms: int
    check: str = ""

    def of_table(self, table: str) -> list[ExportFile]:
        """The files of a table, in order."""
        return [file for file in self.files if file.table == table]


class Export(NamedTuple):
    """A sealed export: where it is, and its seal."""

    target: Target
    seal: Seal

    @property
    def name(self) -> str:
        return self.target.name


def origin_of(path: str, manifest: Manifest) -> Origin:
    """The description of a snapshot in a seal."""
    return Origin(
        path,
        manifest.uuid,
        manifest.position,
        manifest.epochs,
        manifest.now_ms,
        manifest.blake2b,
    )


def publish(target: Target, seal: Seal) -> Seal:
    """Seal an export whose files are all in place. Returns the seal with its check. Raises OSError."""
    facts = _facts(seal)
    check = check_of(facts)
    text = json.dumps(facts | {"check": check}, sort_keys=True, indent=1)
    put(target, NAME, text.encode() + b"\n")
    return seal._replace(check=check)


def read_export(place: str) -> Export:
    """Read the seal of the export at a path or URL, and check that its files are there with their sizes.

    Raises TidelogSparkError.
    """
    with telling(place):
        target = target_of(place)
        found = target.files()
        if NAME not in found:
            raise TidelogSparkError(EXPORT, f"{target.name} is not an export: {_absence(found)}")
        seal = parse(f"{target.name}/{NAME}", target.read(NAME))
    for file in seal.files:
        size = found.get(file.name)
        if size is None:
            raise _not_whole(target, f"its file {file.name} is missing")
        if size != file.nbytes:
            raise _not_whole(
                target,
                f"its file {file.name} has {size} bytes, but the manifest says {file.nbytes}",
            )
    return Export(target, seal)


def verify(export: Export, *files: ExportFile) -> None:
    """Read files of an export whole and compare their checksums. Raises TidelogSparkError."""
    for file in files:
        with telling(export.name):
            if written(export.target, file.name)[:2] != (file.nbytes, file.blake2b):
                raise not_whole(export.target, file)


def parse(path: str, data: bytes) -> Seal:
    """Parse the bytes of the manifest at `path`. Raises TidelogSparkError."""
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"the text is not valid JSON ({error})") from None
    if type(facts) is not dict or facts.get("tidelog") != _KIND:
        raise TidelogSparkError(
            EXPORT, f"{path} is not the manifest of an export, or its start is damaged"
        )
    version = facts.get("format")
    if type(version) is int and version > FORMAT:
        raise TidelogSparkError(
            EXPORT,
            f"{path}: a newer version of tidelog wrote this export in format {version}; this version reads format "
            f"{FORMAT}. Update tidelog",
        )
    if version != FORMAT:
        raise _damaged(
            path, f"the field 'format' is {version!r}, which no version of tidelog writes"
        )
    check = facts.pop("check", None)
    if check != check_of(facts):
        raise _damaged(path, "the content does not match the checksum in the field 'check'")
    try:
        return _seal(facts)._replace(check=str(check))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"a field is missing or wrong ({error})") from None


def _absence(found: dict[str, int]) -> str:
    if not found:
        return "it does not exist, or is empty"
    if "_plan.json" in found:
        return "an export was begun there and not completed. Run the same `tidelog export` again: it goes on"
    return f"it contains no file {NAME}"


def _damaged(path: str, reason: str) -> TidelogSparkError:
    return TidelogSparkError(
        DAMAGED, f"{path}: {reason}. The export is damaged: export the snapshot again"
    )


def not_whole(target: Target, file: ExportFile) -> TidelogSparkError:
    """The error of a file whose checksum is not that of the manifest."""
    return _not_whole(target, f"its file {file.name} does not match its checksum")


def _not_whole(target: Target, reason: str) -> TidelogSparkError:
    return TidelogSparkError(
        DAMAGED,
        f"{target.name} looks like a complete export, but {reason}. Delete it and export the snapshot again",
    )


def _facts(seal: Seal) -> dict[str, Any]:
    origin, position = seal.snapshot, seal.snapshot.position
    return {
        "tidelog": _KIND,
        "format": FORMAT,
        "plan": seal.plan,
        "snapshot": {
            "path": origin.path,
            "uuid": origin.uuid.hex(),
            "position": position._asdict()
            | {"crc": f"{position.crc:08x}", "incarnation": f"{position.incarnation:016x}"},
            "epochs": [
                {"number": life.number, "incarnation": f"{life.incarnation:016x}", "lsn": life.lsn}
                for life in origin.epochs
            ],
            "now_ms": origin.now_ms,
            "blake2b": origin.blake2b,
        },
        "since": None if seal.since is None else seal.since._asdict(),
        "selection": seal.selection,
        "shape": seal.shape,
        "tables": seal.tables,
        "write": seal.write,
        "files": [file.facts() for file in seal.files],
        "created_ms": seal.created_ms,
    }


def _seal(facts: dict[str, Any]) -> Seal:
    told, since = facts["snapshot"], facts["since"]
    at = told["position"]
    return Seal(
        plan=facts["plan"],
        snapshot=Origin(
            told["path"],
            bytes.fromhex(told["uuid"]),
            Position(
                *(int(at["lsn"]), int(at["crc"], 16), int(at["segment"]), int(at["offset"])),
                int(at["incarnation"], 16),
            ),
            tuple(
                Epoch(life["number"], int(life["incarnation"], 16), life["lsn"])
                for life in told["epochs"]
            ),
            told["now_ms"],
            told["blake2b"],
        ),
        since=None if since is None else Base(**since),
        selection=dict(facts["selection"]),
        shape=dict(facts["shape"]),
        tables=dict(facts["tables"]),
        write=dict(facts["write"]),
        files=tuple(ExportFile.of(file) for file in facts["files"]),
        created_ms=facts["created_ms"],
    )
