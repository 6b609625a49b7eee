"""Environment: an LMDB file of rows, opened once per process however many stores use it.

This module alone keeps LMDB's rules:

- One environment per file and process, because closing a second one would drop the first one's locks. So environments
  are shared and reference-counted, keyed by the identity of the file and not by its name.
- A forked child must neither use nor close an environment. Closing would end the parent's read transactions in the
  table of readers, which is shared memory. The child only drops the objects, which leaves that table alone.
- If a mapped file is shorter than its pages refer to, reading it kills the process. So every file is checked with plain
  reads first (snapshot/rows/datafile.py), and a healthy but short one is extended with a hole.
- A write transaction begins and ends in the same thread. Read transactions may move between threads.
- LMDB writes the first pages of a new file without a sync. So a new file gets its name only when they are durable.
- LMDB trusts its file: a wrong number in it kills the process, or silently skips rows. So LMDB reads no page of a
  commit whose structure was not checked (snapshot/rows/structure.py). Until then snapshot/rows/rowfile.py reads the
  rows. It is slower, and runs under a read transaction that keeps LMDB from reusing their pages. A commit of our own
  over a checked commit counts as checked. So does a commit that the file `checked` vouches for
  (snapshot/rows/checked.py). To begin a read transaction LMDB reads only the meta pages.

Every value ends with a checksum (snapshot/rows/seal.py), which is verified at every read of the row.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import lmdb

from tidelog.aof.errors import AofError
from tidelog.aof.identity import DATA
from tidelog.aof.layout import LMDB_LOCK as LOCK
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import Kind, NotPlain
from tidelog.disk.real import MOVED, OUT_OF_SPACE
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.rowkeys import META
from tidelog.snapshot.errors import CheckpointError, DamagedCheckpoint
from tidelog.snapshot.rows import checked, datafile
from tidelog.snapshot.rows.datafile import Head
from tidelog.snapshot.rows.rowfile import (
    BATCH_BYTES,
    BATCH_ROWS,
    NEIGHBOUR_BYTES_MAX,
    ReadAt,
    RowFile,
)
from tidelog.snapshot.rows.rownames import row_name
from tidelog.snapshot.rows.seal import CRC_BYTES, opened, sealed
from tidelog.snapshot.rows.structure import Structure
from tidelog.snapshot.rows.sums import Sums, sums_in

MAP_BYTES: Final = 1 << 40  # largest size of a checkpoint; this reserves address space, not memory
MAX_READERS: Final = 126
# Of LMDB's table of readers, which is 8 KiB: with one reader, and of each further one. LMDB extends a shorter file.
TABLE_BYTES: Final = 192
READER_BYTES: Final = 64
PIN_ATTEMPTS: Final = 100
MARGIN_BYTES: Final = 1 << 20
STEP_S: Final = 0.0003  # a check works for about this long (seconds), then pauses for REST_S
REST_S: Final = 0.0001
# if `check_beside` can finish a check within this processor time, it checks at once, without a thread
FIRST_S = 0.004

FORKED: Final = (
    "this checkpoint was opened before a fork and belongs to the parent process; "
    "open the store again in this one"
)

_logger = logging.getLogger("tidelog")

_registry: dict[tuple[int, int], Environment] = {}
_registry_lock = threading.Lock()
_transactions: weakref.WeakSet[ColdRows | Pin | Writing] = weakref.WeakSet()


def open_environment(disk: Disk, directory: Path, *, read_only: bool = False) -> Environment:
    """Open the environment in `directory`, or share the one that is open. `close` it once for each call.

    read_only   create nothing; FileNotFoundError if there is no file

    Otherwise a missing directory or file is created. Raises CheckpointError, DamagedCheckpoint, NewerFormat, OSError.
    """
    place = disk.beneath(directory)
    if place is None:
        raise CheckpointError(
            f"{directory}: checkpoints need a real disk, and this one is simulated in memory"
        )
    disk, directory = place
    path = directory / DATA
    with _registry_lock:
        if disk.exists(path):
            shared = _shared(disk, path, read_only)
            if shared is not None:
                return shared
        if not disk.exists(path) or not _prepare(disk, path, read_only):
            if read_only:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            _create(disk, directory)
        environment = Environment(disk, directory, read_only)
        _registry[environment.identity] = environment
        return environment


def _shared(disk: Disk, path: Path, read_only: bool) -> Environment | None:
    file = disk.open(path)
    try:
        identity = file.identity()
    finally:
        file.close()
    found = _registry.get(identity)
    if found is not None:
        if found.fixed and not read_only:
            raise CheckpointError(
                f"{path} is open in this process already, by a store that could not create the lock file {LOCK} "
                "because it opened read-only; close that store first"
            )
        found.users += 1
        found.remembers = found.remembers or not read_only
    return found


def _prepare(disk: Disk, path: Path, read_only: bool) -> bool:
    """Check that a file is safe to map, and extend it if it is short. Return False if it is blank.

    Raises DamagedCheckpoint, NewerFormat, CheckpointError, OSError.
    """
    file = disk.open(path)
    try:
        head = datafile.read_head(file)
        size = file.size()
        if head is not None:
            datafile.check_reach(file, head)
    finally:
        file.close()
    if head is None:
        return False
    if size < head.bytes:
        if not disk.writable(path):
            raise CheckpointError(
                f"{path} ends before its last page. It is not damaged, but must be made longer before it can be read, "
                "and this process may not write it. Open the store once for writing, or run: truncate -s "
                f"{head.bytes} {path}"
            )
        _extend(disk, path, head)
    if head.transaction == 0 and not read_only:
        disk.sync_directory(path.parent)  # its creator may have been killed before this
    return True


def _create(disk: Disk, directory: Path) -> None:
    """Create a file without rows. It appears whole and durable, or not at all. Raises CheckpointError, OSError."""
    recipe.make_directory(disk, directory)
    path = directory / DATA
    file = disk.create(path.with_name(DATA + recipe.BESIDE))
    try:
        try:
            _open_lmdb(file.path, False, lock=False, subdir=False).close()
        except (lmdb.Error, OSError) as error:
            raise _not_opened(path, error) from error
        recipe.publish_open(disk, file, path)
    finally:
        file.close()


def _extend(disk: Disk, path: Path, head: Head) -> None:
    file = disk.open(path, write=True)
    try:
        file.extend(head.bytes)
    finally:
        file.close()


class Environment:
    """One open file of rows. Only `open_environment` creates it, so that there is one per file.

    path       of data.mdb
    identity   device and inode of the file, whatever its name
    users      reference count
    fixed      open without a lock and never written, because the lock file is missing, or one of the files not writable
    remembers  a user has it open for writing, so the result of a check is recorded in the file `checked`
    sound      the commit that LMDB may read: its structure was checked, or it was made over one that was
    damage     the first fault in the newest commit; None if there is none, or if it was not checked yet
    suspects   parts of that commit's rows that differ from those that were committed
    sums       of the rows of commit `sound`; None if unknown
    mistrusts  ignore the file `checked`
    copies     how many copies are being written
    forked     this is a forked child, which must not use it
    well_keyed keys of damaged rows that were found by key: the payload is damaged, the key is right
    """

    def __init__(self, disk: Disk, directory: Path, read_only: bool) -> None:
        self.path = directory / DATA
        self.users = 1
        self.remembers = not read_only
        # number of the last commit found sound; commit 0 is the empty file, which has no pages
        self.sound = 0
        self.damage: DamagedCheckpoint | None = None
        self.suspects: frozenset[int] = frozenset()
        self.sums: Sums | None = Sums()
        self.mistrusts = False
        self._damaged = -1  # the commit that `damage` belongs to
        self._one_check = threading.Lock()
        self._gate = threading.Lock()  # guards `_checker` and `_stop`
        self._checker: threading.Thread | None = None
        self._stop = False
        self.copies = 0
        self.forked = False
        self.well_keyed: set[bytes] = set()
        self._disk = disk
        lock = directory / LOCK
        # A reader beside a writer must be in LMDB's table of readers. So open with LMDB's lock file, if this process
        # may write it.
        self.fixed = read_only and not (
            disk.exists(lock) and disk.writable(lock) and disk.writable(self.path)
        )
        file = disk.open(self.path)
        try:
            self.identity = file.identity()
        finally:
            file.close()
        _only_plain(disk, lock)  # LMDB follows a link and would write to its target
        if not self.fixed:
            _make_lock(disk, lock)
        # Open LMDB last. If a later step raised, LMDB would stay open, and this process could not open the file again.
        try:
            self._lmdb: lmdb.Environment | None = _open_lmdb(
                directory, self.fixed, lock=not self.fixed
            )
        except (lmdb.Error, OSError) as error:
            raise _not_opened(self.path, error) from error
        try:
            self._check_names(disk, lock)
        except BaseException:
            self._lmdb.close()
            raise
        if not self.fixed:
            # Free the slots of dead readers in the table of readers. The writer does so at each checkpoint; but if
            # checkpoints are rare, readers that are killed one after the other could fill the table.
            with contextlib.suppress(lmdb.Error):
                self._lmdb.reader_check()

    def _check_names(self, disk: Disk, lock: Path) -> None:
        """Check that the names still lead to the files that were checked, since LMDB opened both files by name."""
        _only_plain(disk, lock)
        file = disk.open(self.path)
        try:
            if file.identity() != self.identity:
                raise CheckpointError(
                    f"{self.path} was replaced while it was being opened; open it again"
                )
        finally:
            file.close()

    def close(self) -> None:
        """Drop one reference; the last one closes. All transactions must have ended. A no-op in a forked child."""
        with _registry_lock:
            if self.forked:
                return
            assert self.users > 0, "closed more often than opened"
            self.users -= 1
            if self.users == 0:
                with self._gate:
                    self._stop = True
                if self._checker is not None:
                    self._checker.join()
                _registry.pop(self.identity, None)
                if self._lmdb is not None:
                    self._lmdb.close()
                    self._lmdb = None

    def committed(self) -> int:
        """The number of the newest commit, 0 before the first. Raises CheckpointError."""
        txn = self.begin()
        try:
            return txn.id()
        finally:
            txn.abort()

    def begin(self) -> lmdb.Transaction[bytes]:
        """Begin a read transaction. Raises CheckpointError."""
        try:
            return self._open().begin()
        except lmdb.ReadersFullError as error:
            raise CheckpointError(
                f"{self.path}: {MAX_READERS} processes and threads, the maximum, are reading it already; close one of "
                "them"
            ) from error
        except lmdb.Error as error:
            raise self.trouble("the checkpoint cannot be read", error) from error

    def write(self) -> Writing:
        """Begin a write transaction in this thread. The newest commit is checked first, which may take a second per GB.

        Raises DamagedCheckpoint, CheckpointError, OSError.
        """
        env = self._open()
        if self.fixed:
            raise CheckpointError(f"{self.path} is open read-only")
        self.check()
        try:
            # a dead reader's slot would keep LMDB from reusing pages, so free it
            env.reader_check()
            txn = env.begin(write=True)
        except lmdb.Error as error:
            raise self.trouble("the checkpoint cannot be written", error) from error
        if txn.id() != self.sound + 1:
            txn.abort()
            raise CheckpointError(f"another writer changed {self.path} just now; try again")
        if self.sums is None:
            said = sums_in((txn.get(META) or b"")[:-CRC_BYTES])
            self.sums = None if said is None else Sums.unpack(said)
        return Writing(self, txn)

    # --- the check

    def check(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Check whether LMDB may read the newest commit. A commit is checked only once.

        stop   called between steps; true abandons the check without a result
        Raises DamagedCheckpoint, CheckpointError, OSError.
        """
        # In a forked child `_open` raises. Call it before taking `_one_check`: in a child, that lock may be held by a
        # thread that exists only in the parent.
        self._open()
        with self._one_check:
            self._check_newest(stop, REST_S)
        if self.damage is not None:
            raise self.damage

    def _check_newest(self, stop: Callable[[], bool], rest_s: float) -> None:
        pin = Pin(self)
        try:
            if not self.recalls(pin.number):
                self._check(pin, stop, rest_s)
        finally:
            pin.close()

    def recalls(self, number: int) -> bool:
        """Whether commit `number` was checked, with whatever result."""
        if number in (self.sound, self._damaged):
            return True
        if number and not self.mistrusts and checked.is_remembered(self._disk, self.path, number):
            self.found_sound(number, None)
            return True
        return False

    def found_sound(self, number: int, sums: Sums | None) -> None:
        """Record that commit `number` is sound: it was checked, or made over one that was. sums: None if unknown."""
        self.sums, self.damage, self.suspects, self._damaged = sums, None, frozenset(), -1
        self.sound = number

    def _check(self, pin: Pin, stop: Callable[[], bool], rest_s: float) -> None:
        structure = Structure(self.path, pin.reader(), pin.head)
        clock = time.perf_counter
        end = clock() + STEP_S
        for _ in structure.run():
            if stop():
                return
            if rest_s and clock() >= end:
                time.sleep(rest_s)
                end = clock() + STEP_S
        faults = structure.faults
        if not faults:
            self.found_sound(pin.number, structure.sums)
            self.remember()
            return
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        self.suspects = structure.suspects
        self._damaged = pin.number
        self.damage = DamagedCheckpoint(self.path, faults[0].offset, faults[0].reason + more)
        _logger.error(
            "%s. The checkpoint is no longer written; rows that are not damaged can still be read",
            self.damage,
        )

    def check_beside(self, number: int) -> None:
        """Check commit `number` at once if that takes no more than FIRST_S, else in a thread of its own."""
        if self._one_check.acquire(blocking=False):
            end = time.thread_time() + FIRST_S
            try:
                with contextlib.suppress(AofError, OSError):
                    self._check_newest(lambda: time.thread_time() >= end, 0)
            finally:
                self._one_check.release()
            if number in (self.sound, self._damaged):
                return
        with self._gate:
            if self._stop or (self._checker is not None and self._checker.is_alive()):
                return
            checker = threading.Thread(
                target=self._check_quietly, name="tidelog-check", daemon=True
            )
            # A RuntimeError means that the limit of threads is reached. Then the next checkpoint starts the check.
            with contextlib.suppress(RuntimeError):
                checker.start()
                self._checker = checker

    def _check_quietly(self) -> None:
        # `check` also stores the result in `damage`, so ignore the exception.
        with contextlib.suppress(AofError, OSError):
            self.check(lambda: self._stop)

    def distrust(self, number: int) -> None:
        """Forget that commit `number` is sound: LMDB cannot read a page of it, so the file changed since the check."""
        if self.sound == number:
            self.sound = -1
            with contextlib.suppress(OSError, AofError):
                self._disk.unlink(self.path.with_name(checked.NAME))

    def suspects_of(self, number: int) -> frozenset[int]:
        """The parts of commit `number` that are known to differ from what was committed."""
        return self.suspects if number == self._damaged else frozenset()

    def is_in_place(self) -> bool:
        """Whether its path still leads to this file. Raises OSError."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return False
        try:
            return file.identity() == self.identity
        finally:
            file.close()

    def open_again(self) -> File:
        """Open another descriptor of the file, for plain reads. Raises CheckpointError, OSError."""
        self._open()
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path}: {MOVED}") from error
        if file.identity() != self.identity:
            file.close()
            raise CheckpointError(f"{self.path}: {MOVED}")
        return file

    def remember(self) -> None:
        """Record in the file `checked` that commit `sound` was checked, if a user writes. Failures are ignored."""
        if self.remembers and self.sound:
            checked.remember(self._disk, self.path, self.sound)

    def extend(self) -> None:
        """After a commit: extend the file to its last page. Raises OSError."""
        file = self._disk.open(self.path)
        try:
            head = datafile.read_head(file)
        finally:
            file.close()
        if head is not None:
            _extend(self._disk, self.path, head)

    def size(self) -> int:
        """The size of the file in bytes."""
        return recipe.size(self._disk, self.path)

    def copy_to(self, fd: int, txn: lmdb.Transaction[bytes] | None = None) -> None:
        """Write a compact copy of one transaction to a descriptor. The newest commit is checked first.

        Raises DamagedCheckpoint, CheckpointError, OSError.
        """
        self.check()
        self.copies += 1
        try:
            self._open().copyfd(fd, compact=True, txn=txn)
        except lmdb.Error as error:
            raise self.trouble("the checkpoint cannot be copied", error) from error
        finally:
            self.copies -= 1

    def trouble(self, what: str, error: lmdb.Error, nbytes: int = 0) -> CheckpointError:
        """Turn an error of LMDB into one with advice. `nbytes`: a lower bound of what was to be written."""
        code = getattr(error, "code", 0)
        # LMDB reports a short write as EIO, so a full disk looks like an I/O error. Compare with the free space.
        full = code in OUT_OF_SPACE or (
            code == errno.EIO and self._disk.free(self.path) < 2 * nbytes + MARGIN_BYTES
        )
        if full:
            advice = (
                f"No space left on {self.path.parent}, the disk or the quota is full: free some and run again. Until "
                "then all of the log is kept"
            )
        elif isinstance(error, lmdb.MapFullError):
            advice = f"The file would become larger than {MAP_BYTES >> 40} TiB, the maximum"
        elif isinstance(error, lmdb.PanicError):
            advice = "An earlier failure left it unusable: close the store and open it again"
        else:
            advice = "All of the log is kept"
        found = CheckpointError(f"{self.path}: {what} ({error}). {advice}")
        found.full = full
        return found

    def _open(self) -> lmdb.Environment:
        if self._lmdb is None:
            raise CheckpointError(FORKED if self.forked else f"{self.path} was closed")
        return self._lmdb

    def let_go(self) -> None:
        """In a forked child: drop LMDB's environment without closing it."""
        self.forked = True
        self._lmdb = None


def _only_plain(disk: Disk, path: Path) -> None:
    kind = disk.kind(path)
    if kind not in (None, Kind.FILE):
        raise NotPlain(path, kind, Kind.FILE)


def _make_lock(disk: Disk, lock: Path) -> None:
    """Create LMDB's table of readers, if there is none, with blocks for all of it. Raises OSError.

    LMDB would make the file as a hole and store into it through a map. On a full disk that kills the process (SIGBUS).
    Only a process that has the directory to itself comes here without a file, so the rename replaces no other table.
    """
    if disk.exists(lock):
        return
    beside = lock.with_name(LOCK + recipe.BESIDE)
    nbytes = TABLE_BYTES + (MAX_READERS - 1) * READER_BYTES
    file = disk.create(beside)
    try:
        if file.fill(0, nbytes) < nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(lock))
    finally:
        file.close()
    disk.rename(beside, lock)


def _open_lmdb(path: Path, read_only: bool, *, lock: bool, subdir: bool = True) -> lmdb.Environment:
    options: Any = {
        "map_size": MAP_BYTES,
        "readonly": read_only,
        "lock": lock,
        "subdir": subdir,
        "mode": 0o700,  # files get it without the x bits
        "create": False,
        "max_readers": MAX_READERS,
        # Keep no spare transaction: it would keep a slot in the table of readers, even across a fork.
        "max_spare_txns": 0,
    }
    try:  # create files in the 0.9 format, even if an environment variable asks for another
        return lmdb.Environment(os.fsencode(path), lib_version=0, **options)
    except TypeError:  # py-lmdb before 3.0 knows no other format
        return lmdb.Environment(os.fsencode(path), **options)


def _not_opened(path: Path, error: Exception) -> CheckpointError:
    text = str(error)
    if isinstance(error, lmdb.ReadersFullError):
        advice = (
            f"{MAX_READERS} processes and threads, the maximum, are reading it. Close one of them; the writer's next "
            "checkpoint frees the places of those that were killed"
        )
    elif "already open" in text:
        advice = (
            "this process was forked while its parent was reading or writing it. Start processes with "
            "multiprocessing's `spawn` or `forkserver`, or fork before you open the store"
        )
    elif "Cannot allocate memory" in text:
        advice = (
            f"it needs {MAP_BYTES >> 40} TiB of address space (not of memory): raise `ulimit -v`"
        )
    else:
        advice = "check that this user may write to the directory and that the disk has space"
    return CheckpointError(f"{path} cannot be opened: {text}; {advice}")


class Writing:
    """One write transaction of one thread. It adds the checksums to the rows.

    End it with `commit` or `abort`. All methods raise CheckpointError; the caller must then abort.
    """

    def __init__(self, environment: Environment, txn: lmdb.Transaction[bytes]) -> None:
        self._environment = environment
        self._txn: lmdb.Transaction[bytes] | None = txn
        self._cursor: lmdb.Cursor[bytes] | None = txn.cursor()
        self._number = txn.id()
        self._sums = None if environment.sums is None else environment.sums.copy()
        self._bytes = 0  # payload bytes put so far
        self._thread = threading.get_ident()
        _transactions.add(self)

    def sums(self) -> bytes | None:
        """The packed sums of all rows as they are now, for the row META; None if the previous commit's are unknown."""
        return None if self._sums is None else self._sums.pack()

    @property
    def of_another(self) -> bool:
        """Whether it is open and belongs to another thread."""
        return self._txn is not None and self._thread != threading.get_ident()

    def put(self, key: bytes, payload: bytes) -> None:
        """Put a row. (`putmulti` would be no better: it releases the GIL for each row too.)"""
        assert self._txn is not None
        self._bytes += len(payload)
        value = sealed(key, payload)
        sums = self._sums
        try:
            if sums is None:
                self._txn.put(key, value)
                return
            before = self._txn.replace(key, value)
            if before is not None:
                sums.remove(key, before)
            sums.add(key, value)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def delete(self, key: bytes) -> bool:
        """Delete a row. Return whether it existed."""
        assert self._txn is not None
        try:
            before = self._txn.pop(key)
            if before is None:
                return False
            if self._sums is not None:
                self._sums.remove(key, before)
            return True
        except lmdb.Error as error:
            raise self._failed(error) from error

    def delete_some(self, prefix: bytes, limit: int) -> bool:
        """Delete up to `limit` rows whose keys begin with `prefix`. Return whether there may be more."""
        return self._delete_while(prefix, lambda key: key.startswith(prefix), limit)

    def delete_range(self, start: bytes, stop: bytes, limit: int) -> bool:
        """Delete up to `limit` rows with keys from `start` up to but not `stop`. Return whether there may be more."""
        return self._delete_while(start, stop.__gt__, limit)

    def _delete_while(self, start: bytes, goes: Callable[[bytes], bool], limit: int) -> bool:
        """Delete rows from `start` on while `goes(key)` holds. Return whether there may be more."""
        cursor = self._cursor
        assert cursor is not None
        try:
            found = cursor.set_range(start)
            for _ in range(limit):
                if not found or not goes(cursor.key()):
                    return False
                if self._sums is not None:
                    self._sums.remove(*cursor.item())
                # This moves the cursor to the next row.
                cursor.delete()
                found = bool(cursor.key())
            return found
        except lmdb.Error as error:
            raise self._failed(error) from error

    def commit(self) -> None:
        txn = self._txn
        assert txn is not None
        self._cursor = None
        try:
            txn.commit()
        except lmdb.Error as error:
            raise self._failed(error) from error
        self._txn = None
        self._environment.found_sound(self._number, self._sums)

    def abort(self) -> None:
        """Undo everything. A no-op after `commit` or `abort`."""
        self._cursor = None
        txn, self._txn = self._txn, None
        if txn is not None and not self._environment.forked:
            with contextlib.suppress(lmdb.Error):
                txn.abort()

    def let_go(self) -> None:
        """In a forked child: drop the transaction without ending it. The parent's thread continues its own."""
        self._cursor = None
        self._txn = None

    def _failed(self, error: lmdb.Error) -> CheckpointError:
        return self._environment.trouble("the checkpoint could not be written", error, self._bytes)


class Pin:
    """A read transaction. While it lasts, LMDB reuses no page of its commit. To begin it, LMDB reads only meta pages.

    number   the commit
    head     the content of that commit's meta page
    txn      LMDB's transaction. Read with it only if the commit is sound
    """

    def __init__(self, environment: Environment) -> None:
        """Raises DamagedCheckpoint, CheckpointError, OSError."""
        self.txn: lmdb.Transaction[bytes] | None = None
        self._environment = environment
        self._file: File | None = environment.open_again()
        _transactions.add(self)
        try:
            for _ in range(PIN_ATTEMPTS):
                self.txn = environment.begin()
                self.number = self.txn.id()
                head = datafile.read_head(self._file, self.number)
                if head is not None:
                    break
                # two commits since then overwrote this commit's meta page, so try again
                self.txn.abort()
            else:
                raise CheckpointError(f"{environment.path} changes too often to be read; try again")
        except BaseException:
            self.close()
            raise
        self.head = head

    def reader(self) -> ReadAt:
        """A function for plain reads of the file. Raises CheckpointError, OSError."""
        if self._file is None:
            self._file = self._environment.open_again()
        pread = self._file.pread
        return lambda offset, nbytes: pread(nbytes, offset)

    def close_file(self) -> None:
        """Close the descriptor for plain reads. `reader` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close(self) -> None:
        """End the transaction and close the file. Idempotent."""
        self.close_file()
        txn, self.txn = self.txn, None
        if txn is not None:
            txn.abort()

    def let_go(self) -> None:
        """In a forked child: drop the transaction without ending it, because it belongs to the parent."""
        self.txn = None
        self.close_file()


class ColdRows:
    """The rows of the newest commit, for the engine: a `engine.cold.ColdStore`.

    They belong to one read transaction, which is kept until `renew`. The caller holds its own lock around every call,
    because only one thread at a time may use a transaction. While the commit is not known to be sound, `_txn` is None
    and rows are read without LMDB.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.path = environment.path
        self._pin: Pin | None = None
        self._plain: RowFile | None = None
        self._txn: lmdb.Transaction[bytes] | None = None
        self._cursor: lmdb.Cursor[bytes] | None = None
        _transactions.add(self)
        self.renew()

    def renew(self) -> None:
        """[lock] Switch to the newest commit. Raises CheckpointError, OSError, and then still shows the old commit."""
        environment = self.environment
        pin = Pin(environment)
        if not environment.recalls(pin.number):
            environment.check_beside(pin.number)
        self._end()
        self._pin = pin
        if environment.sound == pin.number:
            self._trust(pin)
        else:
            self._plain = RowFile(
                self.path, pin.reader(), pin.head, well_keyed=environment.well_keyed
            )

    def _trust(self, pin: Pin) -> None:
        pin.close_file()
        self._plain = None
        self._txn = pin.txn
        assert self._txn is not None
        self._cursor = self._txn.cursor()

    def _without_lmdb(self) -> RowFile | None:
        """The reader to use while LMDB may not read; None if LMDB may read by now."""
        pin = self._pin
        if pin is None or self._plain is None:
            self._gone()
        environment = self.environment
        if environment.sound == pin.number:
            self._trust(pin)
            return None
        self._plain.suspects = environment.suspects_of(pin.number)
        return self._plain

    def _distrusted(self, key: bytes, error: lmdb.Error) -> RowFile:
        """Switch to plain reads of the same commit: LMDB failed to read a page, and its transaction is now unusable.

        The plain reader names the damaged row, and all other rows stay readable. Raises CorruptBlock.
        """
        pin = self._pin
        if pin is None:
            self._gone()
        self._txn = self._cursor = None
        self.environment.distrust(pin.number)
        try:
            self._plain = RowFile(
                self.path, pin.reader(), pin.head, well_keyed=self.environment.well_keyed
            )
        except (OSError, AofError) as second:
            raise CorruptBlock(f"{self.path}: {row_name(key)} cannot be read: {error}") from second
        self.environment.check_beside(pin.number)
        return self._plain

    def number(self) -> int:
        """[lock] The number of the commit that is shown; greater is newer."""
        if self._pin is None:
            self._gone()
        return self._pin.number

    def close(self) -> None:
        """[lock] End the read transaction. The environment stays open. Idempotent."""
        if not self.environment.forked:
            self._end()

    def get(self, key: bytes) -> bytes | None:
        """The payload of a row, or None if there is no such row. Raises CorruptBlock."""
        txn = self._txn
        if txn is None:
            plain = self._without_lmdb()
            return self.get(key) if plain is None else plain.get(key)
        try:
            value = txn.get(key)
            if value is None:
                self._not_there(key)
                return None
        except lmdb.Error as error:
            return self._distrusted(key, error).get(key)
        payload = value[:-CRC_BYTES]  # as `opened`, a call less
        if crc32c_after(crc32c_of(key), payload) != int.from_bytes(value[-CRC_BYTES:], "little"):
            self.environment.well_keyed.add(key)
            opened(self.path, key, value)
        return payload

    def before(self, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The row with the greatest key that begins with `prefix` and is at most `key`, or None.

        Raises CorruptBlock.
        """
        cursor = self._cursor
        if cursor is None:
            plain = self._without_lmdb()
            return self.before(key, prefix) if plain is None else plain.before(key, prefix)
        try:
            if not cursor.set_range(key):
                found = cursor.last()
            elif cursor.key() == key:
                found = True
            else:
                self._neighbour(key, *cursor.item(), greater=True)
                found = cursor.prev()
            if not found:
                return None
            at, value = cursor.item()
        except lmdb.Error as error:
            return self._distrusted(key, error).before(key, prefix)
        if at > key or not at.startswith(prefix):
            self._neighbour(key, at, value, greater=False)
            return None
        return at, opened(self.path, at, value)

    def after(self, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The row with the least key that begins with `prefix` and is at least `key`, or None.

        Raises CorruptBlock.
        """
        cursor = self._cursor
        if cursor is None:
            plain = self._without_lmdb()
            return self.after(key, prefix) if plain is None else plain.after(key, prefix)
        try:
            found = cursor.set_range(max(key, prefix))
            at, value = cursor.item()  # both empty if there is no row
            if at != key and (cursor.prev() if found else cursor.last()):
                self._neighbour(max(key, prefix), *cursor.item(), greater=False)
        except lmdb.Error as error:
            return self._distrusted(key, error).after(key, prefix)
        if not found:
            return None
        if at < key or not at.startswith(prefix):
            self._neighbour(key, at, value, greater=True)
            return None
        return at, opened(self.path, at, value)

    def values(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over all rows from `start` on with their values. Checksums are not verified.

        The caller must drop the iterator before `renew` or `close`. Raises CorruptBlock.
        """
        if self._txn is None:
            plain = self._without_lmdb()
            if plain is not None:
                yield from plain.values(start)
                return
        assert self._txn is not None
        try:
            cursor = self._txn.cursor()
            if cursor.set_range(start) if start else cursor.first():
                yield from cursor
        except lmdb.Error as error:
            raise CorruptBlock(f"{self.path}: {row_name(start)} cannot be read: {error}") from error

    def rows(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the rows whose keys begin with `prefix`, ascending, from `start` on.

        Rows are read in batches of up to BATCH_ROWS; the caller holds the lock only during `next`. If `renew` runs
        between two batches, the iteration continues in the new commit. Raises CorruptBlock.
        """
        at = max(prefix, start)
        while True:
            batch, more = self._batch(prefix, at)
            yield from batch
            if not more:
                return
            at = batch[-1][0] + b"\0"

    def _batch(self, prefix: bytes, start: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
        cursor = self._cursor
        if cursor is None:
            plain = self._without_lmdb()
            return self._batch(prefix, start) if plain is None else plain.batch(prefix, start)
        batch: list[tuple[bytes, bytes]] = []
        nbytes = 0
        try:
            found = cursor.set_range(start)
            while found:
                key, value = cursor.item()
                if not key.startswith(prefix):
                    return batch, False
                batch.append((key, opened(self.path, key, value)))
                nbytes += len(value)
                if len(batch) == BATCH_ROWS or nbytes >= BATCH_BYTES:
                    return batch, True
                found = cursor.next()
        except lmdb.Error as error:
            return self._distrusted(start, error).batch(prefix, start)
        return batch, False

    def _not_there(self, key: bytes) -> None:
        """Check that a row that was not found is really missing. Raises CorruptBlock if damage may hide it; lmdb.Error.

        A row with a damaged key fails its checksum and still lies at its old place, next to where the search ended. A
        damaged key in a branch leads the search to a place where keys are out of order.
        """
        cursor = self._cursor
        assert cursor is not None
        if cursor.set_range(key):
            self._neighbour(key, *cursor.item(), greater=True)
            found = cursor.prev()
        else:
            found = cursor.last()
        if found:
            self._neighbour(key, *cursor.item(), greater=False)

    def _neighbour(self, key: bytes, at: bytes, value: bytes, *, greater: bool) -> None:
        """Check the row before or after the place of the missing `key`: that row's key may be the damaged one."""
        if (at < key) if greater else (at > key):
            raise CorruptBlock(
                f"{self.path}: cannot search for {row_name(key)}: {row_name(at)} is out of order"
            )
        if len(value) <= NEIGHBOUR_BYTES_MAX and at not in self.environment.well_keyed:
            opened(self.path, at, value)

    def _end(self) -> None:
        self._cursor = self._txn = self._plain = None
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.close()

    def _gone(self) -> NoReturn:
        raise CheckpointError(
            FORKED if self.environment.forked else f"{self.path}: these rows were closed"
        )

    def let_go(self) -> None:
        """In a forked child: drop the transaction without ending it, because it belongs to the parent."""
        self._cursor = None  # in this order: each one references the next
        self._txn = self._plain = None
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.let_go()


def _never_free(*objects: object) -> None:
    """In a forked child: keep objects alive for ever.

    Freeing an environment would wait for threads of the parent that were using it, and they do not exist in the child.
    The child then cannot open the environment again; `_not_opened` explains that to the caller.
    """
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()  # another thread of the parent may have held it
    environments = list(_registry.values())
    for busy in environments:
        if busy.copies or any(isinstance(t, Writing) and t.of_another for t in _transactions):
            _never_free(busy._lmdb)
    for transaction in list(_transactions):
        if isinstance(transaction, Writing) and transaction.of_another:
            _never_free(transaction._cursor, transaction._txn)
        transaction.let_go()
    _transactions.clear()
    _registry.clear()
    for environment in environments:
        environment.let_go()


os.register_at_fork(after_in_child=_after_fork_in_child)
