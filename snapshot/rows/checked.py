"""Checked: the file `checked` beside data.mdb. It records that the structure of one commit was checked and is sound.

    tidelog checked
    format 1
    transaction 12
    bytes 40960
    mtime_ns 1700000000000000000
    ctime_ns 1700000000000000000
    inode 4711
    crc32c 89abcdef

It is valid while data.mdb still matches every line. It is only advice: if it is missing, damaged, of a newer format or
about another commit, data.mdb is checked again. So it is written in place and never synced; a crash costs one check.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from tidelog.aof.textfile import TextFile
from tidelog.disk.interface import Disk, File

NAME: Final = "checked"
BYTES_MAX: Final = 4096

_TEXT: Final = TextFile("tidelog checked", 1)


def _text(file: File, transaction: int) -> bytes:
    """The contents of `checked` for data.mdb as it is now. Raises OSError."""
    mtime, ctime = file.times()
    return _TEXT.render(
        f"transaction {transaction}\nbytes {file.size()}\n"
        f"mtime_ns {mtime}\nctime_ns {ctime}\ninode {file.identity()[1]}\n"
    )


def remember(disk: Disk, data: Path, transaction: int) -> None:
    """Record that data.mdb, as it is now, contains this commit and is sound. Failures are ignored."""
    with contextlib.suppress(OSError):
        file = disk.open(data)
        try:
            text = _text(file, transaction)
        finally:
            file.close()
        record = disk.create(data.with_name(NAME))
        try:
            record.write(0, text)
        finally:
            record.close()


def is_remembered(disk: Disk, data: Path, transaction: int) -> bool:
    """Whether data.mdb was found sound at this commit and has not changed since."""
    path = data.with_name(NAME)
    with contextlib.suppress(OSError):
        if not disk.exists(path):
            return False
        record = disk.open(path)
        try:
            said = record.pread(BYTES_MAX, 0)
        finally:
            record.close()
        file = disk.open(data)
        try:
            return said == _text(file, transaction)
        finally:
            file.close()
    return False
