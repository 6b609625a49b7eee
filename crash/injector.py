"""The injector: makes one operation of a disk fail, or all from one on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.disk import real

ONCE: Final = "once"
ONWARDS: Final = "onwards"
SHORT: Final = "short"
LIES: Final = "lies"
FULL: Final = "full"
BEFORE: Final = "before"
INSIDE: Final = "inside"
AFTER: Final = "after"
KILLS: Final = (BEFORE, INSIDE, AFTER)
HOW: Final = (ONCE, ONWARDS, SHORT, LIES, FULL, *KILLS)
SYNCS: Final = ("fsync", "fdatasync")
WRITES: Final = ("write", "append", "fill")

# For each error the operations that can fail with it; none named means all of them.
CODES: Final[dict[int, tuple[str, ...]]] = {
    errno.EIO: (),
    errno.ENOSPC: ("create", "write", "append", "fill", "rename", "move", "mkdir"),
    errno.EDQUOT: ("create", "write", "append", "fill", "rename", "move", "mkdir"),
    errno.EMFILE: ("open", "create", "lock", "hold", "listdir", "sync_directory"),
}


class Trouble(NamedTuple):
    """How a disk fails, or a process is killed at it.

    files  on files with checkpoints; if not, in memory
    how    ONCE, ONWARDS: an error. SHORT: one system call writes less than it was given, and says so. LIES: a sync
           fails, and later ones say that its data is there. FULL: the file system is too small. KILLS: the process is
           killed before or after an operation, or inside a write
    at     the number of the operation, among those that can fail in this way; of SHORT, of the system call; of FULL,
           how many pages there are; 0 for no trouble
    code   the error; 0 for none
    again  the recovery from the kill is killed too, before this operation of its; 0 for not
    below  system calls fail, those of LMDB too, on files below this directory; "" if operations of the disk fail
    """

    files: bool
    how: str
    at: int
    code: int = 0
    again: int = 0
    below: str = ""

    def nearest(self) -> Iterator[Trouble]:
        """The same at this operation and, one by one, at those before it: where it is in a part of the workload."""
        return (self._replace(at=at) for at in range(self.at, 0, -1))

    def words(self) -> str:
        operation = "system call" if self.below else "operation"
        among = f"below {self.below} " if self.below else ""
        if self.how == SHORT:
            return f"write {self.at} {among}was short"
        if self.how == FULL:
            return f"the file system had {self.at} pages"
        if self.how == LIES:
            return f"sync {self.at} {among}failed, and later ones lied"
        if self.how in KILLS:
            kind = "write" if self.how == INSIDE else "operation"
            again = f", and its recovery before operation {self.again}" if self.again else ""
            return f"killed {self.how} {kind} {self.at}{again}"
        since = "from then on" if self.how == ONWARDS else "once"
        return f"{errno.errorcode[self.code]} at {operation} {self.at} {among}of those that can raise it, {since}"


class Injector:
    """Fails operations. `struck` says which one failed first; `seen` counts those of each error.

    It is the hook of a HookedDisk, and `before` that of a SimulatedDisk.
    """

    def __init__(self, trouble: Trouble | None) -> None:
        self.trouble = trouble
        self.struck: tuple[str, Path] | None = None
        self.lying = False  # a sync failed, so pages may be gone that the next one says are there
        self.seen: dict[int | str, int] = dict.fromkeys(CODES, 0)
        self.writes = 0  # system calls

    def _strikes(self, operation: str, path: Path) -> bool:
        trouble = self.trouble
        strikes = False
        for code, names in CODES.items():
            if not names or operation in names:
                self.seen[code] += 1
                if trouble is not None and trouble.code == code:
                    reached = self.seen[code] - trouble.at
                    strikes = reached == 0 or reached > 0 and trouble.how == ONWARDS
        if strikes:
            self.struck = self.struck or (operation, path)
            self.lying = self.lying or operation in SYNCS
        return strikes

    def words(self) -> str:
        """The operation that failed first; "" if none has."""
        return f"{self.struck[0]} of {self.struck[1]}" if self.struck else ""

    @property
    def counts(self) -> dict[int | str, int]:
        """How many operations can raise each error, and how many system calls write."""
        return {**self.seen, SHORT: self.writes}

    def error(self, path: Path) -> OSError:
        assert self.trouble is not None
        return OSError(self.trouble.code, "injected", str(path))

    def before(self, operation: str, path: Path) -> None:
        if operation not in WRITES and self._strikes(operation, path):
            raise self.error(path)

    def any(self, operation: str, path: Path) -> None:
        """The same for a disk that tears failed writes by itself."""
        if self._strikes(operation, path):
            raise self.error(path)

    def inside(self, operation: str, path: Path, length: int) -> int | None:
        return length // 2 if self._strikes(operation, path) else None

    def broken(self, operation: str, path: Path) -> None:
        raise self.error(path)

    def after(self, operation: str, path: Path) -> None:
        pass

    @contextmanager
    def short_writes(self) -> Iterator[None]:
        """Meanwhile, the writes of real disks can be short."""
        original: Any = vars(real)["os"]

        def pwrite(fd: int, data: Any, offset: int) -> int:
            self.writes += 1
            trouble = self.trouble
            if trouble is not None and trouble.how == SHORT and len(data) > 1:
                if trouble.at == self.writes:
                    self.struck = self.struck or ("pwrite", Path())
                    data = memoryview(data)[: len(data) // 2]
            written: int = original.pwrite(fd, data, offset)
            return written

        setattr(real, "os", _Instead(original, pwrite))  # noqa: B010  # mypy forbids an assignment to a module
        try:
            yield
        finally:
            setattr(real, "os", original)  # noqa: B010


class _Instead:
    """The module os, with another pwrite."""

    def __init__(self, module: Any, pwrite: Callable[[int, Any, int], int]) -> None:
        self._module = module
        self.pwrite = pwrite

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
