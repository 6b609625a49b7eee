"""Full: a workload runs on file systems that are too small for it, one after the other, of one page, two, three.

Each is a tmpfs in a mount namespace of the process of the runs, so nothing can be left behind. Root may mount it;
another user does so in a user namespace, where the kernel allows that. Here the kernel itself has no room: for the log,
for a file that it prepares, for a mapping, for LMDB. Then the file system grows, and the store is judged.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from pathlib import Path
from typing import Final

from tidelog.crash.errors import BenchError
from tidelog.crash.forked import Died, Forked
from tidelog.crash.injected import HUNG_S, emptied
from tidelog.crash.injector import FULL as SMALL
from tidelog.crash.injector import Trouble
from tidelog.crash.served import be_quiet
from tidelog.crash.suffered import Scene, Suffered, Sufferer
from tidelog.disk.real import RealDisk, RealFile

FULL: Final = "full"
PAGE: Final = 4096
ROOM: Final = 1 << 14  # pages, more than any workload needs
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
MS_REMOUNT: Final = 32
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2
SINGLE_S: Final = 5.0
REFUSED: Final = "no small file system can be mounted here"


class CannotFill(BenchError):
    """No file system can be mounted here. The text is the reason."""


class Filling:
    """The layer FULL. `scratch` is an existing empty directory."""

    layer = FULL
    by = ""

    def __init__(self, scene: Scene, scratch: Path) -> None:
        self.scene = scene
        self.nothing = Trouble(True, SMALL, 0)
        mounts = _Mounts()
        self._forked: Forked[Trouble, Suffered] = Forked(
            lambda trouble: suffer(scene, scratch, mounts, trouble), HUNG_S
        )

    def ask(self, trouble: Trouble) -> Suffered | Died:
        """Raises CannotFill."""
        return self._forked.ask(trouble)

    def troubles(self, plain: Suffered) -> list[Trouble]:
        return [self.nothing._replace(at=at) for at in range(1, plain.seen[SMALL] + 1)]

    def close(self) -> None:
        self._forked.close()


class _Mounts:
    """The mounts of this process, which has them to itself from the first one on. They end with it."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._own = False

    def mount(self, place: Path, pages: int) -> None:
        """Mount an empty file system on an empty directory. Raises CannotFill."""
        if not self._own:
            self._begin()
            self._own = True
        self._call("mount", b"tmpfs", bytes(place), b"tmpfs", 0, self._size(pages))

    def grow(self, place: Path) -> None:
        """Give a file system ROOM."""
        self._call("mount", b"tmpfs", bytes(place), None, MS_REMOUNT, self._size(ROOM))

    def unmount(self, place: Path) -> None:
        self._call("umount2", bytes(place), MNT_DETACH)

    def _begin(self) -> None:
        """Give this process a mount namespace of its own."""
        if self._libc.unshare(CLONE_NEWNS) != 0:
            if ctypes.get_errno() != errno.EPERM:
                self._failed("unshare")
            user, group = os.geteuid(), os.getegid()
            self._be_single()
            self._call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
            self._tell("setgroups", b"deny")
            self._tell("uid_map", b"0 %d 1" % user)
            self._tell("gid_map", b"0 %d 1" % group)
        self._call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)

    @staticmethod
    def _be_single() -> None:
        """Wait until other threads have ended, since a process with several gets no namespace of users.

        A hook of a library may have begun some after the fork and joined them: the kernel ends them a moment later.
        """
        until = time.monotonic() + SINGLE_S
        while len(RealDisk().listdir(Path("/proc/self/task"))) > 1 and time.monotonic() < until:
            time.sleep(0.001)

    @staticmethod
    def _size(pages: int) -> bytes:
        return b"size=%d" % (pages * PAGE)

    def _call(self, name: str, *args: bytes | int | None) -> None:
        if getattr(self._libc, name)(*args) != 0:
            self._failed(name)

    def _tell(self, name: str, words: bytes) -> None:
        """Say who is root in the user namespace of this process. The file takes no write at an offset."""
        try:
            file = RealDisk().open(Path("/proc/self") / name, write=True)
        except OSError as error:
            raise CannotFill(f"{REFUSED}: {name}: {error.strerror}") from error
        try:
            if self._libc.write(file.fileno(), words, len(words)) != len(words):
                self._failed(name)
        finally:
            file.close()

    def _failed(self, name: str) -> None:
        code = ctypes.get_errno()
        said = f"{REFUSED}: {name}: {os.strerror(code)}"
        if code == errno.EINVAL:  # a process with several threads gets no namespace of users
            said += (
                f" in a process with the threads {[each.name for each in threading.enumerate()]}"
            )
        raise CannotFill(said)


class _Watched(RealDisk):
    """The operating system's files. `most` is how many pages of their file system were taken at most."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.background = False  # so that the order of the operations is always the same
        self.most = 0
        self._root = root

    def note(self) -> None:
        self.most = max(self.most, (self.capacity(self._root) - self.free(self._root)) // PAGE)

    def create(self, path: Path) -> RealFile:
        self.note()
        return super().create(path)

    def sync_directory(self, path: Path) -> None:
        self.note()
        super().sync_directory(path)

    def unlink(self, path: Path) -> None:
        self.note()
        super().unlink(path)


def suffer(scene: Scene, scratch: Path, mounts: _Mounts, trouble: Trouble) -> Suffered:
    """Run a workload on a file system of `trouble.at` pages, and judge what is left once it has more.

    Raises CannotFill.
    """
    be_quiet()
    root = emptied(scratch)
    run = Sufferer(scene, lambda: f"a file system of {trouble.at} pages" if trouble.at else "")
    try:
        mounts.mount(root, trouble.at or ROOM)
        try:
            disk = _Watched(root)
            run.live(disk, root)
            disk.note()
            mounts.grow(root)
            run.judge(RealDisk(), root, power=False)
        finally:
            mounts.unmount(root)
    finally:
        RealDisk().rmdir(root)
    return run.result({} if trouble.at else {SMALL: disk.most - 1})
