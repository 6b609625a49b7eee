"""Space made ready before it is needed, away from the lock: zeros for the segment, and a spare for the next one.

It only saves time. Whoever needs space that is not there yet takes over what there is (`filled`,
`take_spare`) and does the rest itself, so a thread that is late, fails or cannot be started changes no result.
Errors here are silent: who needs the space meets them, if they are still there.

What is kept true:

- After `filled` returned, no zero is written to that file any more; so frames may follow.
- A spare is only ever one that this object created, empty. One that another life left is emptied.
- The thread never takes the store's lock, so one who holds that may wait for it.
- A job that breaks off leaves what it has: `stop` and the next life clear up.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.aof import segment
from tidelog.disk.interface import Disk, File

PIECE_BYTES: Final = 256 << 10  # the most that somebody in a hurry waits for
PAUSE_S: Final = 0.002


class _Filling:
    """Zeros for `file` from `at` to `end`, in pieces. `taken`: stop, and touch the file no more."""

    __slots__ = ("file", "at", "end", "lock", "taken")

    def __init__(self, file: File, start: int, end: int) -> None:
        self.file = file
        self.at = start
        self.end = end
        self.lock = threading.Lock()  # held while the file is touched
        self.taken = False

    def piece(self) -> bool:
        """Fill one more. False if that was the last, or no more can be had."""
        with self.lock:
            if self.taken or self.at >= self.end:
                return False
            wanted = min(self.at + PIECE_BYTES, self.end)
            self.at = self.file.fill(self.at, wanted)
            return self.at == wanted

    def take(self) -> int:
        """How far the zeros reach. From here on the file is the caller's."""
        self.taken = True
        with self.lock:
            return self.at


class _Spare:
    """The next segment's file in the making. `taken`: leave it, and its name, alone."""

    __slots__ = ("disk", "path", "size", "file", "filling", "lock", "taken")

    def __init__(self, disk: Disk, path: Path, size: int) -> None:
        self.disk = disk
        self.path = path
        self.size = size
        self.file: File | None = None
        self.filling: _Filling | None = None
        self.lock = threading.Lock()  # held while the name or the file is touched
        self.taken = False

    def make(self) -> None:
        with self.lock:
            if self.taken:
                return
            try:
                self.file = self.disk.create(self.path)  # empties one that was left by another life
                self.filling = _Filling(self.file, 0, self.size)
            except OSError:
                return self._drop()
        while self._step(self.filling):
            pass

    def _step(self, filling: _Filling) -> bool:
        with self.lock:
            if self.taken or self.file is None:
                return False
            try:
                if filling.piece():
                    return True
                if filling.at < filling.end:  # no space: others may need what this has
                    self._drop()
                else:
                    self.file.fsync()
            except OSError:
                self._drop()
        return False

    def take(self) -> tuple[File, int] | None:
        """The open file and how far it is filled; None if there is none. It is the caller's now."""
        self.taken = True
        with self.lock:
            file, self.file = self.file, None
            return None if file is None or self.filling is None else (file, self.filling.at)

    def discard(self) -> None:
        self.taken = True
        with self.lock:
            self._drop()

    def _drop(self) -> None:
        file, self.file = self.file, None
        if file is not None:
            file.close()
            with contextlib.suppress(OSError):
                self.disk.unlink(self.path)


class Ahead:
    """Prepares space in `directory`, one thing after the other, in a thread if the disk allows it.

    Its methods are called by one thread at a time: under the log's lock, or by whoever closes the log.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._path = directory / segment.SPARE
        self._filling: _Filling | None = None
        self._spare: _Spare | None = None
        self._ended: list[tuple[File, int]] = []
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        # No Event: an interrupt can leave its lock taken, and `stop` would hang.
        self._stopping = False
        self._thread: threading.Thread | None = None

    def fill(self, file: File, start: int, end: int, *, gently: bool) -> None:
        """Begin to write zeros to `file`. `gently`: a little at a time, since every sync takes along
        what has gathered."""
        filling = self._filling = _Filling(file, start, end)
        pause = PAUSE_S if gently else 0.0

        def job() -> None:
            with contextlib.suppress(OSError):
                while filling.piece():
                    if pause and self._thread is not None:
                        time.sleep(pause)

        self.do(job)

    def filled(self) -> int:
        """End the filling that was begun last. How far it got; 0 if there was none."""
        filling, self._filling = self._filling, None
        return 0 if filling is None else filling.take()

    def make_spare(self, size: int) -> None:
        """Begin to make a file of `size` bytes for the next segment, all zeros and fsynced."""
        if self._spare is None:
            self._spare = _Spare(self._disk, self._path, size)
            self.do(self._spare.make)

    def take_spare(self) -> tuple[File, int] | None:
        """The spare, however far it is: an open file and the bytes of zeros in it. None if there is none;
        then the name is free for the caller to make one."""
        spare, self._spare = self._spare, None
        return None if spare is None else spare.take()

    def end(self, file: File, size: int) -> None:
        """Cut and close the file of a segment that ended. Its zeros mean nothing: errors do not either."""
        self._ended.append((file, size))
        self.do(self._end_all)

    def _end_all(self) -> None:
        while self._ended:
            file, size = self._ended[-1]
            file.unmap()
            with contextlib.suppress(OSError):
                file.truncate(size)
            file.close()
            self._ended.pop()

    def do(self, job: Callable[[], object]) -> None:
        """Run `job` in the thread, which is started if need be; at once where the disk wants no threads."""
        if not self._disk.background:
            job()
            return
        self._jobs.put(job)
        if self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name="tidelog-ahead", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: the next one tries again
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while not self._stopping:
            job = self._jobs.get()
            if job is not None:
                job()

    def stop(self) -> None:
        """End the thread, which is waited for; remove the spare; finish with segments that ended."""
        self._stopping = True
        if self._filling is not None:
            self._filling.taken = True
        if self._spare is not None:
            self._spare.taken = True
        self._jobs.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._spare is not None:
            self._spare.discard()
        self._end_all()

    def abandon(self) -> None:
        """In the child after a fork, where no thread runs and any lock may be held: close descriptors."""
        if self._spare is not None and self._spare.file is not None:
            self._spare.file.close()
        for file, _ in self._ended:
            file.close()
