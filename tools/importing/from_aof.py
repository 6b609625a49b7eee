"""From an AOF: a single file, one that begins with an RDB image, or the directory of a log of several files.

Only the last file may end in the middle of a command or of a transaction, as after a crash. That part is dropped, as
Redis drops it, and told. A manifest says which files count (spec 12.3).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.engine.rdb.errors import RdbCut, RdbDamaged, RdbError
from tidelog.engine.rdb.file import MAGIC
from tidelog.engine.rdb.source import Source
from tidelog.tools.failed import NotThere
from tidelog.tools.importing.errors import SourceDamaged, of_rdb
from tidelog.tools.importing.filters import Filter
from tidelog.tools.importing.from_rdb import take_rdb
from tidelog.tools.importing.keys import Keys
from tidelog.tools.importing.pieces import pieces_of
from tidelog.tools.importing.replayed import Replaying
from tidelog.tools.importing.resp import commands

MANIFEST_BYTES_MAX: Final = 1 << 20
LINE_BYTES_MAX: Final = 1024
DIRECTORY: Final = "appendonlydir"
TEMPORARY: Final = "temp-"  # the name of a manifest begins with it until Redis renames it
CHECK_AOF: Final = "Redis refuses it too: look at it with redis-check-aof, or take another copy"
TRUNCATE: Final = "; --truncate-tail takes what is before"
_TYPES: Final = ("b", "i", "h")


class Listed(NamedTuple):
    """A line of a manifest."""

    name: str
    seq: int
    kind: str


def take_file(
    path: Path, keys: Keys, wanted: Filter, now_ms: int, *, truncate_tail: bool = False
) -> None:
    """Take a dump file or a single append-only file. Raises Failed, OSError."""
    replaying = Replaying(keys, wanted, now_ms)
    _take(path, keys, wanted, replaying, last=True, alone=True, truncate_tail=truncate_tail)


def take_directory(
    path: Path, keys: Keys, wanted: Filter, now_ms: int, *, truncate_tail: bool = False
) -> None:
    """Take the log in a directory with a manifest, or in its directory appendonlydir. Raises Failed, OSError."""
    files = files_of(path)
    replaying = Replaying(keys, wanted, now_ms)
    for number, each in enumerate(files, 1):
        replaying.new_file()
        last = number == len(files)
        _take(each, keys, wanted, replaying, last=last, truncate_tail=truncate_tail and last)


def _take(
    path: Path,
    keys: Keys,
    wanted: Filter,
    replaying: Replaying,
    *,
    last: bool,
    alone: bool = False,
    truncate_tail: bool = False,
) -> None:
    with pieces_of(path) as pieces:
        begins_with_image = pieces.peek(len(MAGIC)) == MAGIC
        source = Source(pieces.pull, pieces.size)
        try:
            if begins_with_image:
                take_rdb(source, keys, wanted)
                _begins_with_a_command(source)
            elif pieces.peek(1)[:1] not in (b"*", b"#", b""):
                source.damaged(
                    f"neither a dump file nor an append-only file begins with {pieces.peek(5)!r}"
                )
            elif alone and not pieces.peek(1):
                source.damaged("the file is empty")
            try:
                _replay(path, source, keys, replaying, last, truncate_tail=truncate_tail)
            except RdbDamaged as error:
                advice = CHECK_AOF + (TRUNCATE if last else "")
                raise SourceDamaged(f"{path}, {error}. {advice}") from error
        except RdbError as error:
            raise of_rdb(str(path), error) from error


def _begins_with_a_command(source: Source) -> None:
    """Raise RdbDamaged if data follows an image, and is not the beginning of a log."""
    if not source.at_end():
        buffer, at = source.window()
        if buffer[at] not in b"*#":
            source.damaged("there is more data behind the end of the dump, and it is no command")


def _replay(
    path: Path,
    source: Source,
    keys: Keys,
    replaying: Replaying,
    last: bool,
    *,
    truncate_tail: bool,
) -> None:
    whole = source.offset
    cut = False
    try:
        for offset, args in commands(source):
            replaying.take(offset, args)
            whole = source.offset
    except RdbCut:
        if not last:
            raise
        cut = True
    except RdbDamaged as error:
        # Redis refuses such a file, zeros at its end included.
        if not truncate_tail:
            raise
        replaying.drop_open()
        keys.report.notes_more.append(
            f"{path} was taken up to byte {whole}, as --truncate-tail says; what follows was left out: {error}"
        )
        return
    if replaying.open_at is not None:
        if not last:
            source.damaged("a transaction has no EXEC, and further files follow", replaying.open_at)
        whole, cut = replaying.open_at, True
        replaying.drop_open()
    if cut:
        keys.report.notes_more.append(
            f"{path} ends in the middle of a command or transaction, as after a crash; it was taken up to byte "
            f"{whole}, as Redis takes it"
        )


def files_of(path: Path) -> list[Path]:
    """The files of a log, in order. Raises Failed, OSError."""
    folder = path
    found = _manifests(folder)
    if not found and (path / DIRECTORY).is_dir():
        folder = path / DIRECTORY
        found = _manifests(folder)
    if len(found) != 1:
        raise NotThere(
            f"{path} is a directory with {len(found)} files that end in .manifest. Give the directory of an "
            f"append-only file of Redis 7 ({DIRECTORY}), or the path of a single file"
        )
    manifest = found[0]
    with manifest.open("rb") as file:
        data = file.read(MANIFEST_BYTES_MAX + 1)
    try:
        listed = parse_manifest(data)
    except ValueError as error:
        raise SourceDamaged(f"{manifest}: {error}") from None
    missing = [each.name for each in listed if not (folder / each.name).is_file()]
    if missing:
        raise SourceDamaged(f"{manifest} names {missing[0]}, which is not there. Take another copy")
    return [folder / each.name for each in listed]


def _manifests(folder: Path) -> list[Path]:
    """The manifests in a directory, without the one that a killed Redis was about to put in place."""
    return sorted(path for path in folder.glob("*.manifest") if not path.name.startswith(TEMPORARY))


def parse_manifest(data: bytes) -> list[Listed]:
    """The base and the increments, in order. Raises ValueError."""
    if len(data) > MANIFEST_BYTES_MAX:
        raise ValueError(f"the manifest has more than {MANIFEST_BYTES_MAX} bytes")
    base: list[Listed] = []
    increments: list[Listed] = []
    for number, raw in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), 1):
        if number > 1 and not raw:
            continue
        if raw.startswith("#"):
            continue
        try:
            each = _listed(raw)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if each.kind == "b":
            base.append(each)
        elif each.kind == "i":
            if increments and each.seq <= increments[-1].seq:
                raise ValueError(
                    f"line {number}: the increment {each.seq} comes after {increments[-1].seq}"
                )
            increments.append(each)
    if len(base) > 1:
        raise ValueError("the manifest names two bases")
    if not base and not increments:
        raise ValueError("the manifest names no file")
    return base + increments


def _listed(line: str) -> Listed:
    if len(line) > LINE_BYTES_MAX:
        raise ValueError(f"the line has more than {LINE_BYTES_MAX} bytes")
    words = shlex.split(line)
    pairs = dict(zip(words[::2], words[1::2]))
    if len(words) % 2 or not {"file", "seq", "type"} <= pairs.keys():
        raise ValueError("a line has the pairs file, seq and type")
    name, seq, kind = pairs["file"], pairs["seq"], pairs["type"]
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is a path, not the name of a file")
    if not re.fullmatch(r"\d{1,18}", seq) or kind not in _TYPES:
        raise ValueError(f"seq {seq} and type {kind} are not those of a file")
    return Listed(name, int(seq), kind)
