"""Prepares log space in the background: zeros for the open segment, and a spare file for the next one.

This is only an optimisation. The writer takes over whatever is ready (`filled`, `take_spare`) and does the
rest itself, so a thread that is late, fails or cannot start changes no result. Errors here are ignored: if
one persists, the writer meets it when it needs the space.

Invariants:

- Once `filled` has returned, this module writes no more zeros to that file, so frames may follow.
- This object uses only spares that it created. It empties a spare that another life left.
- The thread never takes the store's lock, so a caller that holds the lock may wait for the thread.
- A job that fails leaves its partial result; `stop` and the next life clean up.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.aof import segment
from tidelog.disk.interface import Disk, File

PIECE_BYTES: Final = 256 << 10  # `take` waits for at most one piece
PAUSE_S: Final = 0.002


class _Filling:
    """Fills `file` with zeros from `at` to `end`, in pieces. Once `taken` is set, it leaves the file alone."""

    __slots__ = ("file", "at", "end", "lock", "taken")

    def __init__(self, file: File, start: int, end: int) -> None:
        self.file = file
        self.at = start
        self.end = end
        self.lock = threading.Lock()  # held while the file is touched
        self.taken = False

    def piece(self) -> bool:
        """Fill one more piece. False if nothing is left to fill, or the disk is out of space."""
        with self.lock:
            if self.taken or self.at >= self.end:
                return False
            wanted = min(self.at + PIECE_BYTES, self.end)
            self.at = self.file.fill(self.at, wanted)
            return self.at == wanted

    def take(self) -> int:
        """Stop, and return the offset that the zeros reach. The file is now the caller's."""
        self.taken = True
        with self.lock:
            return self.at


class _Spare:
    """Prepares the file of the next segment. Once `taken` is set, it leaves the file and its name alone."""

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
                self.file = self.disk.create(self.path)  # empties a spare that another life left
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
                # no space left: delete the spare, so that other files can use its space
                if filling.at < filling.end:
                    self._drop()
                else:
                    self.file.fsync()
            except OSError:
                self._drop()
        return False

    def take(self) -> tuple[File, int] | None:
        """Stop, and return the open file and how far it is filled; None if there is no file.

        The file is now the caller's.
        """
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
    """Prepares space in `directory`, one job at a time, in a thread if `disk.background` allows it.

    Only one thread at a time may call its methods: the holder of the log's lock, or the thread that closes the log.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._path = directory / segment.SPARE
        self._filling: _Filling | None = None
        self._spare: _Spare | None = None
        # `end` adds at the right while the thread takes at the left.
        self._ended: deque[tuple[File, int]] = deque()
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        # A bool and not an Event: an interrupt can leave the lock inside an Event taken, and then `stop` would hang.
        self._stopping = False
        self._thread: threading.Thread | None = None

    def fill(self, file: File, start: int, end: int, *, gently: bool) -> None:
        """Start writing zeros to `file` from `start` to `end`.

        With `gently` it pauses between pieces, because every sync also writes the zeros that are in the cache.
        """
        filling = self._filling = _Filling(file, start, end)
        pause = PAUSE_S if gently else 0.0

        def job() -> None:
            with contextlib.suppress(OSError):
                while filling.piece():
                    if pause and self._thread is not None:
                        time.sleep(pause)

        self.do(job)

    def filled(self) -> int:
        """Stop the most recent `fill` and return the offset it reached; 0 if there was none."""
        filling, self._filling = self._filling, None
        return 0 if filling is None else filling.take()

    def make_spare(self, size: int) -> None:
        """Start making the next segment's file: `size` bytes of zeros, fsynced."""
        if self._spare is None:
            self._spare = _Spare(self._disk, self._path, size)
            self.do(self._spare.make)

    def take_spare(self) -> tuple[File, int] | None:
        """The spare as far as it is ready: an open file and the number of zero bytes in it.

        None if there is no spare; the caller may then create a file under its name.
        """
        spare, self._spare = self._spare, None
        return None if spare is None else spare.take()

    def end(self, file: File, size: int) -> None:
        """Cut the file of a finished segment to `size` bytes and close it.

        Errors are ignored: zeros after the last frame do no harm.
        """
        self._ended.append((file, size))
        self.do(self._end_all)

    def _end_all(self) -> None:
        while self._ended:
            file, size = self._ended[0]
            file.unmap()
            with contextlib.suppress(OSError):
                file.truncate(size)
            file.close()
            self._ended.popleft()  # only now: `abandon` closes what is still in it

    def do(self, job: Callable[[], object]) -> None:
        """Run `job` in the thread, starting it if necessary; in the caller if the disk allows no threads."""
        if not self._disk.background:
            job()
            return
        self._jobs.put(job)
        if self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name="tidelog-ahead", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: the next job tries again
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while not self._stopping:
            job = self._jobs.get()
            if job is not None:
                job()

    def stop(self) -> None:
        """Stop the thread and wait for it, remove the spare, and cut and close finished segments."""
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
        """Close the descriptors, in the child after a fork: no thread runs there and any lock may be held."""
        if self._spare is not None and self._spare.file is not None:
            self._spare.file.close()
        for file, _ in self._ended:
            file.close()
