"""File kinds. A store consists of plain files and directories only.

Through a link in its directory, a store would overwrite or delete files somewhere else. Opening a FIFO waits for its
other end. After `Disk.guard`, every call below the root refuses both with `NotPlain`.
"""

from __future__ import annotations

import errno
import stat
from enum import Enum
from pathlib import Path
from typing import Final


class Kind(Enum):
    """The kind of a file; a link is not followed."""

    FILE = "a plain file"
    DIRECTORY = "a directory"
    LINK = "a symbolic link"
    FIFO = "a FIFO"
    SOCKET = "a socket"
    DEVICE = "a device"


_KINDS: Final = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFLNK: Kind.LINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
}


class NotPlain(OSError):
    """A name in a store has the wrong kind. It was neither followed nor opened.

    kind     the kind that was found
    wanted   the kind that belongs there: FILE or DIRECTORY
    what     the message without the path
    """

    def __init__(self, path: Path, kind: Kind, wanted: Kind) -> None:
        place = "a file" if wanted is Kind.FILE else "a directory"
        follows = ", and tidelog follows no links inside a store" if kind is Kind.LINK else ""
        advice = f"put {wanted.value} back under this name, or move {kind.value.replace('a ', 'the ', 1)} away"
        number = errno.ELOOP if kind is Kind.LINK else errno.EINVAL
        self.what = f"found {kind.value} where {place} belongs{follows}; {advice}"
        super().__init__(number, self.what, str(path))
        self.kind, self.wanted = kind, wanted

    def __str__(self) -> str:
        return f"{self.filename}: {self.what}"


def kind_of(mode: int) -> Kind:
    """The kind of a file whose `st_mode` from stat(2) is `mode`."""
    return _KINDS.get(stat.S_IFMT(mode), Kind.DEVICE)
