"""Starting: starts the owner of a store, a process that outlives this one (client/owner.py).

Until the owner is ready, its output is a pipe to this process, which so learns why an owner could not start.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.aof.lock import NAME as LOCK
from tidelog.aof.lock import OWNER, holder
from tidelog.disk.process import environment, words_of
from tidelog.disk.real import RealDisk

FOR_OPERATOR: Final = "only an operator starts the server of this store, as its tidelog.toml says"
READY: Final = b"ready\n"
FAILED: Final = "cannot serve: "  # begins the last line of an owner that ends with an error
TEXT_BYTES_MAX: Final = 1 << 16
# Detaches the owner: the parent of the process that becomes the owner ends at once, so nobody has to wait for it.
_DETACH: Final = (
    "import os,sys\nif os.fork(): os._exit(0)\nos.setsid()\nos.execv(sys.argv[1], sys.argv[1:])"
)


def readable(fd: int, seconds: float) -> bool:
    """Whether there is something to read within `seconds`, or the other side has closed.

    Not `select.select`, which refuses descriptors above 1,023.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0, round(seconds * 1000))))


class Starting:
    """An owner that is being started. `look` tells how far it is.

    failed    it ended with an error; otherwise, an owner that ended was killed
    """

    failed = False

    def __init__(self, root: Path, options: Mapping[str, str]) -> None:
        """Raises OSError."""
        words = [f"{name}={value}" for name, value in options.items()]
        account = _account_of(root)
        self._pipe, theirs = os.pipe()
        try:
            launcher = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _DETACH]
                + [sys.executable, "-m", OWNER, str(root), *words],
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                cwd="/",
                env=environment(),
                **account,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(theirs)
        launcher.wait()
        self._said = bytearray()

    def look(self, seconds: float) -> str | None:
        """Wait so long for a sign. Returns "" if a server is ready, its last line if it ended, None if it goes on."""
        until = time.monotonic() + seconds
        while not self._said.endswith(READY):
            left = max(0.0, until - time.monotonic())
            if not readable(self._pipe, left):
                return None
            piece = os.read(self._pipe, TEXT_BYTES_MAX)
            if not piece:
                text = self._said.decode("utf-8", "backslashreplace").strip()
                said = text.rpartition("\n")[2]
                self.failed = said.startswith(FAILED)
                return said.removeprefix(FAILED) or "it was killed, or ended without a word"
            self._said += piece
            del self._said[:-TEXT_BYTES_MAX]
        return ""

    def close(self) -> None:
        """Stop looking. The owner goes on."""
        os.close(self._pipe)


def is_owner(root: Path) -> bool:
    """Whether the process that has a store open is an owner: one that a client has started."""
    try:
        pid = holder(RealDisk(), root / LOCK)
    except OSError:
        return False
    return pid is not None and OWNER in words_of(pid)


def _account_of(root: Path) -> dict[str, Any]:
    """Arguments of Popen, with which the superuser starts an owner as the user whose store it is: files that the
    superuser made could not be read by that user. Raises PermissionError for the store of another user.
    """
    try:
        found = (root / LOCK).stat()
    except OSError:
        return {}  # there is no store, or none that this user may see
    if found.st_uid == os.geteuid():
        return {}
    if os.geteuid():
        raise PermissionError(errno.EPERM, "the store belongs to another user", str(root))
    return {"user": found.st_uid, "group": found.st_gid, "extra_groups": ()}
