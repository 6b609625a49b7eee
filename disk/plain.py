"""What may lie under a name in a store: plain files and directories, and nothing else.

A link in a store's directory would have the store overwrite or delete what lies somewhere else, and opening a FIFO
waits for its other end. `Disk.guard` has every call below a root refuse both with `NotPlain`.
"""

from __future__ import annotations

import errno
import stat
from enum import Enum
from pathlib import Path
from typing import Final


class Kind(Enum):
    """What lies under a name; a link is not followed."""

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
    """Something else lies where a file or a directory of a store belongs. It was neither followed nor opened.

    kind     what lies there
    wanted   what belongs there: FILE or DIRECTORY
    what     the message without the path
    """

    def __init__(self, path: Path, kind: Kind, wanted: Kind) -> None:
        place = "a file's" if wanted is Kind.FILE else "a directory's"
        follows = ", and no link is followed inside a store" if kind is Kind.LINK else ""
        advice = f"put back {wanted.value} under this name, or move away what lies there"
        number = errno.ELOOP if kind is Kind.LINK else errno.EINVAL
        self.what = f"{kind.value} lies in {place} place{follows}; {advice}"
        super().__init__(number, self.what, str(path))
        self.kind, self.wanted = kind, wanted

    def __str__(self) -> str:
        return f"{self.filename}: {self.what}"


def kind_of(mode: int) -> Kind:
    """The kind in a mode of stat(2)."""
    return _KINDS.get(stat.S_IFMT(mode), Kind.DEVICE)
