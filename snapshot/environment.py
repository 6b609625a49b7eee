"""Environment: an LMDB file of rows, opened once in this process however many stores look at it.

LMDB's own rules, which are kept here and nowhere else:

- One environment per file and process: closing a second one would drop the first one's locks. So environments are
  shared and counted, by what the file is and not by its name.
- In a forked child an environment must not be used, and not be closed either: closing ends read transactions in the
  table of readers, which is shared memory, and they are the parent's. The child lets go of the objects instead, which
  does nothing to that table.
- A mapped file that is shorter than its pages say kills the process that reads it. So every file is looked at with
  plain reads first (snapshot/datafile.py), and one that is healthy but short is extended with a hole.
- A write transaction begins and ends in the same thread. Read transactions may wander.
- LMDB writes the first pages of a new file without a sync. So a new file gets its name when they are on the disk.
- LMDB trusts its file: a wrong number in it kills the process, or leads past rows without a word. So LMDB reads no page
  of a commit whose structure was not checked (snapshot/structure.py). Until then rows are read by snapshot/rowfile.py,
  slower, under a read transaction that keeps their pages from being used again. A commit of our own over a checked one
  counts as checked, and so does one that a file beside says so of (snapshot/checked.py). To begin a read transaction
  LMDB reads the meta pages alone.

Every value ends with a checksum (snapshot/seal.py), which is looked at whenever the row is read.
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
from tidelog.snapshot import checked, datafile
from tidelog.snapshot.datafile import Head
from tidelog.snapshot.errors import CheckpointError, DamagedCheckpoint
from tidelog.snapshot.rowfile import (
    BATCH_BYTES,
    BATCH_ROWS,
    NEIGHBOUR_BYTES_MAX,
    ReadAt,
    RowFile,
)
from tidelog.snapshot.rownames import row_name
from tidelog.snapshot.seal import CRC_BYTES, opened, sealed
from tidelog.snapshot.structure import Structure
from tidelog.snapshot.sums import Sums, sums_in

MAP_BYTES: Final = 1 << 40  # address space only: a checkpoint may grow to this
MAX_READERS: Final = 126
PIN_ATTEMPTS: Final = 100
MARGIN_BYTES: Final = 1 << 20
STEP_S: Final = 0.0003  # of a check; a step takes up to 0.1 ms more
REST_S: Final = 0.0001
FIRST_S = 0.004  # of processor time: what can be checked in that is checked before the first read

FORKED: Final = (
    "this checkpoint was opened before a fork and belongs to the parent process; "
    "open the store again in this one"
)

_logger = logging.getLogger("tidelog")

_registry: dict[tuple[int, int], Environment] = {}
_registry_lock = threading.Lock()
_transactions: weakref.WeakSet[ColdRows | Pin | Writing] = weakref.WeakSet()


def open_environment(disk: Disk, directory: Path, *, read_only: bool = False) -> Environment:
    """The environment in `directory`, opened or shared; `close` it once for each call.

    read_only   no file is created; FileNotFoundError if there is none

    Otherwise a missing directory or file is created. Raises CheckpointError, DamagedCheckpoint, NewerFormat, OSError.
    """
    place = disk.beneath(directory)
    if place is None:
        raise CheckpointError(
            f"{directory}: this disk lies in memory, so there can be no checkpoint on it"
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
                f"{path} is open read-only in this process, without {LOCK}; close that store, then open this one"
            )
        found.users += 1
        found.remembers = found.remembers or not read_only
    return found


def _prepare(disk: Disk, path: Path, read_only: bool) -> bool:
    """See that a file may be mapped. False: it is blank, and nothing was ever written to it.

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
                f"{path} ends before its last page, which is healthy but cannot be read as it is, and it may not "
                f"be written here: open the store once where it may, or: truncate -s {head.bytes} {path}"
            )
        _extend(disk, path, head)
    if head.transaction == 0 and not read_only:
        disk.sync_directory(path.parent)  # whoever created it may have been killed before that
    return True


def _create(disk: Disk, directory: Path) -> None:
    """A new file without rows, which is whole and on the disk or not there. Raises CheckpointError, OSError."""
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
    """One open file of rows. Made by `open_environment`, which sees to it that there is one only.

    path       of data.mdb
    identity   what the file is, whatever its name
    users      how many have it open
    fixed      it is open without a lock and cannot be written: there is no lock file, or it may not be written
    remembers  somebody has it open for writing, so it is written down beside it that it was checked
    sound      number of the commit that LMDB may read: its structure was checked, or it was made of one that was
    damage     what the check of the newest commit found, None if nothing, or if it was not checked yet
    suspects   parts of the rows of that commit that are not those that were committed
    sums       of the rows of commit `sound`, None if they are not known
    well_keyed damaged rows that were found by their keys: what is wrong is what they hold, their keys are right
    """

    def __init__(self, disk: Disk, directory: Path, read_only: bool) -> None:
        self.path = directory / DATA
        self.users = 1
        self.remembers = not read_only
        self.sound = 0  # nothing was committed, and there are no pages
        self.damage: DamagedCheckpoint | None = None
        self.suspects: frozenset[int] = frozenset()
        self.sums: Sums | None = Sums()
        self.mistrusts = False  # what is written down beside the file
        self._damaged = -1  # the commit that has the damage
        self._one_check = threading.Lock()
        self._gate = threading.Lock()  # of the thread that checks
        self._checker: threading.Thread | None = None
        self._stop = False
        self.copies = 0  # under way
        self.forked = False
        self.well_keyed: set[bytes] = set()
        self._disk = disk
        lock = directory / LOCK
        # A reader beside a writer has to stand in the table of readers, so it opens as the writer does, if it may.
        self.fixed = read_only and not (
            disk.exists(lock) and disk.writable(lock) and disk.writable(self.path)
        )
        file = disk.open(self.path)
        try:
            self.identity = file.identity()
        finally:
            file.close()
        _only_plain(disk, lock)  # LMDB follows links, and would write to what one leads to
        # Last: one that nobody has would stay open, and could not be opened again in this process.
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
            # Who was killed reading keeps a place in the table. The writer clears them with a checkpoint, but where it
            # makes none for long, readers that are started and killed would fill the table.
            with contextlib.suppress(lmdb.Error):
                self._lmdb.reader_check()

    def _check_names(self, disk: Disk, lock: Path) -> None:
        """LMDB opened both files by their names: they must still lead to the files that were looked at before."""
        _only_plain(disk, lock)
        file = disk.open(self.path)
        try:
            if file.identity() != self.identity:
                raise CheckpointError(
                    f"{self.path} was replaced while it was opened; open it again"
                )
        finally:
            file.close()

    def close(self) -> None:
        """Give up one use; the last one closes. Transactions of this environment must have ended. In a forked
        child nothing happens."""
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
        """Number of the newest commit, 0 before the first. Raises CheckpointError."""
        txn = self.begin()
        try:
            return txn.id()
        finally:
            txn.abort()

    def begin(self) -> lmdb.Transaction[bytes]:
        """A read transaction. Raises CheckpointError."""
        try:
            return self._open().begin()
        except lmdb.ReadersFullError as error:
            raise CheckpointError(
                f"{self.path}: {MAX_READERS} processes and threads read it already; close one of them"
            ) from error
        except lmdb.Error as error:
            raise self.trouble("reading cannot begin", error) from error

    def write(self) -> Writing:
        """A write transaction of this thread, over a commit that was checked: that may take a second for each GB.

        Raises DamagedCheckpoint, CheckpointError, OSError.
        """
        env = self._open()
        if self.fixed:
            raise CheckpointError(f"{self.path} is open read-only")
        self.check()
        try:
            env.reader_check()  # who died reading must not keep pages from being used again
            txn = env.begin(write=True)
        except lmdb.Error as error:
            raise self.trouble("a checkpoint cannot begin", error) from error
        if txn.id() != self.sound + 1:
            txn.abort()
            raise CheckpointError(f"{self.path} was written by somebody else just now; try again")
        if self.sums is None:
            said = sums_in((txn.get(META) or b"")[:-CRC_BYTES])
            self.sums = None if said is None else Sums.unpack(said)
        return Writing(self, txn)

    # --- the check

    def check(self, stop: Callable[[], bool] = lambda: False) -> None:
        """See that LMDB may read the newest commit; one that was checked is not read again.

        stop   asked between steps; true: give it up, and know nothing
        Raises DamagedCheckpoint, CheckpointError, OSError.
        """
        self._open()  # in a forked child nobody would ever release the lock
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
        """Whether commit `number` was checked, whatever was found."""
        if number in (self.sound, self._damaged):
            return True
        if number and not self.mistrusts and checked.is_remembered(self._disk, self.path, number):
            self.found_sound(number, None)
            return True
        return False

    def found_sound(self, number: int, sums: Sums | None) -> None:
        """Commit `number` was checked, or made of one that was. sums: of its rows, None if they are not known."""
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
        more = f" (and {len(faults) - 1} faults more)" if len(faults) > 1 else ""
        self.suspects = structure.suspects
        self._damaged = pin.number
        self.damage = DamagedCheckpoint(self.path, faults[0].offset, faults[0].reason + more)
        _logger.error("%s. It is only read from now on, row by row", self.damage)

    def check_beside(self, number: int) -> None:
        """Have commit `number` checked: at once if that is a matter of milliseconds, else by a thread of its own."""
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
            with contextlib.suppress(
                RuntimeError
            ):  # a limit of threads: the next checkpoint checks
                checker.start()
                self._checker = checker

    def _check_quietly(self) -> None:
        # What was found is remembered, and told when somebody asks.
        with contextlib.suppress(AofError, OSError):
            self.check(lambda: self._stop)

    def distrust(self, number: int) -> None:
        """LMDB found a page of commit `number` that it cannot read: the file was changed since the check."""
        if self.sound == number:
            self.sound = -1
            with contextlib.suppress(OSError, AofError):
                self._disk.unlink(self.path.with_name(checked.NAME))

    def suspects_of(self, number: int) -> frozenset[int]:
        """The parts of commit `number` that are known not to be those that were committed."""
        return self.suspects if number == self._damaged else frozenset()

    def open_again(self) -> File:
        """Another descriptor of the file, for plain reads. Raises CheckpointError, OSError."""
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
        """Write down beside the file that its newest commit was checked. A failure is of no consequence."""
        if self.remembers and self.sound:
            checked.remember(self._disk, self.path, self.sound)

    def extend(self) -> None:
        """After a commit: let the file reach to its last page. Raises OSError."""
        file = self._disk.open(self.path)
        try:
            head = datafile.read_head(file)
        finally:
            file.close()
        if head is not None:
            _extend(self._disk, self.path, head)

    def size(self) -> int:
        """Bytes of the file."""
        return recipe.size(self._disk, self.path)

    def copy_to(self, fd: int, txn: lmdb.Transaction[bytes] | None = None) -> None:
        """Write a compact copy of one transaction to a descriptor.

        Raises DamagedCheckpoint, CheckpointError, OSError.
        """
        self.check()
        self.copies += 1
        try:
            self._open().copyfd(fd, compact=True, txn=txn)
        except lmdb.Error as error:
            raise self.trouble("it cannot be copied", error) from error
        finally:
            self.copies -= 1

    def trouble(self, what: str, error: lmdb.Error, nbytes: int = 0) -> CheckpointError:
        """An error of LMDB in words, with what to do about it. `nbytes` were to be written, at least."""
        code = getattr(error, "code", 0)
        # Of a write that the disk took half of LMDB says "Input/output error".
        if code in OUT_OF_SPACE or (
            code == errno.EIO and self._disk.free(self.path) < 2 * nbytes + MARGIN_BYTES
        ):
            advice = "there is no space on the disk, or the quota is used up: make room; the log is kept until then"
        elif isinstance(error, lmdb.MapFullError):
            advice = f"it would be larger than {MAP_BYTES >> 40} TiB"
        elif isinstance(error, lmdb.PanicError):
            advice = "an earlier failure left it unfit for use: close the store and open it again"
        else:
            advice = "the log is kept"
        return CheckpointError(f"{self.path}: {what}: {error}; {advice}")

    def _open(self) -> lmdb.Environment:
        if self._lmdb is None:
            raise CheckpointError(FORKED if self.forked else f"{self.path} was closed")
        return self._lmdb

    def let_go(self) -> None:
        """In a forked child: never touch it again."""
        self.forked = True
        self._lmdb = None


def _only_plain(disk: Disk, path: Path) -> None:
    kind = disk.kind(path)
    if kind not in (None, Kind.FILE):
        raise NotPlain(path, kind, Kind.FILE)


def _open_lmdb(path: Path, read_only: bool, *, lock: bool, subdir: bool = True) -> lmdb.Environment:
    options: Any = {
        "map_size": MAP_BYTES,
        "readonly": read_only,
        "lock": lock,
        "subdir": subdir,
        "mode": 0o700,  # files get it without the x
        "create": False,
        "max_readers": MAX_READERS,
        "max_spare_txns": 0,  # a spare one would keep its place in the table of readers across a fork
    }
    try:  # new files in the format of 0.9, whatever the process's environment says
        return lmdb.Environment(str(path), lib_version=0, **options)
    except TypeError:  # before 3.0 there is no other
        return lmdb.Environment(str(path), **options)


def _not_opened(path: Path, error: Exception) -> CheckpointError:
    text = str(error)
    if isinstance(error, lmdb.ReadersFullError):
        advice = (
            f"{MAX_READERS} processes and threads read it: close one of them; those of them that were killed go "
            "with the writer's next checkpoint"
        )
    elif "already open" in text:
        advice = (
            "this process was forked while its parent was reading or writing it; start such processes with "
            "multiprocessing's `spawn` or `forkserver`, or fork before the store is opened"
        )
    elif "Cannot allocate memory" in text:
        advice = (
            f"it needs {MAP_BYTES >> 40} TiB of address space (not of memory): raise `ulimit -v`"
        )
    else:
        advice = "see that the directory may be written and has room"
    return CheckpointError(f"{path} cannot be opened: {text}; {advice}")


class Writing:
    """One write transaction, of one thread. Rows get their checksums here.

    `commit` or `abort` ends it. All methods raise CheckpointError; then it is to be aborted.
    """

    def __init__(self, environment: Environment, txn: lmdb.Transaction[bytes]) -> None:
        self._environment = environment
        self._txn: lmdb.Transaction[bytes] | None = txn
        self._cursor: lmdb.Cursor[bytes] | None = txn.cursor()
        self._number = txn.id()
        self._sums = None if environment.sums is None else environment.sums.copy()
        self._bytes = 0  # that were put
        self._thread = threading.get_ident()
        _transactions.add(self)

    def sums(self) -> bytes | None:
        """Of all rows as they are now, for the row META; None if those of the commit before are not known."""
        return None if self._sums is None else self._sums.pack()

    @property
    def of_another(self) -> bool:
        """Whether another thread is in the middle of it."""
        return self._txn is not None and self._thread != threading.get_ident()

    def put(self, key: bytes, payload: bytes) -> None:
        """Put a row. (`putmulti` would be no better: it gives the interpreter up for each row too.)"""
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
        """Delete a row; was it there?"""
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
        """Delete up to `limit` rows that begin with `prefix`; may there be more?"""
        return self._delete_while(prefix, lambda key: key.startswith(prefix), limit)

    def delete_range(self, start: bytes, stop: bytes, limit: int) -> bool:
        """Delete up to `limit` rows from key `start` up to `stop`, which stays; may there be more?"""
        return self._delete_while(start, stop.__gt__, limit)

    def _delete_while(self, start: bytes, goes: Callable[[bytes], bool], limit: int) -> bool:
        """Delete rows from `start` on for as long as their keys are to go. No payload is read."""
        cursor = self._cursor
        assert cursor is not None
        try:
            found = cursor.set_range(start)
            for _ in range(limit):
                if not found or not goes(cursor.key()):
                    return False
                if self._sums is not None:
                    self._sums.remove(*cursor.item())
                # The cursor then stands at the row after it.
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
        """Undo everything. Ending it twice is allowed."""
        self._cursor = None
        txn, self._txn = self._txn, None
        if txn is not None and not self._environment.forked:
            with contextlib.suppress(lmdb.Error):
                txn.abort()

    def let_go(self) -> None:
        """In a forked child: drop the transaction without ending it; the parent's thread goes on with its own."""
        self._cursor = None
        self._txn = None

    def _failed(self, error: lmdb.Error) -> CheckpointError:
        return self._environment.trouble("the checkpoint could not be written", error, self._bytes)


class Pin:
    """A read transaction whose pages nobody uses again while it lasts. To begin one LMDB reads meta pages alone.

    number   of the commit that it is of
    head     what the meta page of that commit says
    txn      LMDB's. Nothing is to be read with it unless the commit is sound
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
                self.txn.abort()  # two commits since: its meta page was written over
            else:
                raise CheckpointError(f"{environment.path} is written too often to be read")
        except BaseException:
            self.close()
            raise
        self.head = head

    def reader(self) -> ReadAt:
        """Plain reads of the file. Raises CheckpointError, OSError."""
        if self._file is None:
            self._file = self._environment.open_again()
        pread = self._file.pread
        return lambda offset, nbytes: pread(nbytes, offset)

    def close_file(self) -> None:
        """Plain reads are not needed for now."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close(self) -> None:
        """End it. Closing twice is allowed."""
        self.close_file()
        txn, self.txn = self.txn, None
        if txn is not None:
            txn.abort()

    def let_go(self) -> None:
        """In a forked child: drop the transaction without ending it, which belongs to the parent."""
        self.txn = None
        self.close_file()


class ColdRows:
    """The rows of the newest commit, for the engine: a `engine.cold.ColdStore`.

    They are those of one read transaction, kept until `renew`. Its user's lock is held around every call: a
    transaction is used by one thread at a time. While the commit is not known to be sound, `_txn` is None, and rows
    are read without LMDB.
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
        """[lock] See the newest commit from now on. Raises CheckpointError, OSError, and then sees what it saw."""
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
        """What reads the rows while LMDB may not; None: it may, by now."""
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
        """LMDB cannot read a page, and after that its transaction reads nothing any more. Go on without it, among the
        same rows: what is damaged is told by name, and everything else stays readable. Raises CorruptBlock."""
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
        """[lock] Which commit they are of; greater is newer."""
        if self._pin is None:
            self._gone()
        return self._pin.number

    def close(self) -> None:
        """[lock] End the read transaction. The environment stays open. Closing twice is allowed."""
        if not self.environment.forked:
            self._end()

    def get(self, key: bytes) -> bytes | None:
        """The payload of a row, or None. Raises CorruptBlock."""
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
        """The greatest row that begins with `prefix` and whose key is at most `key`, or None."""
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
        """The least row that begins with `prefix` and whose key is at least `key`, or None."""
        cursor = self._cursor
        if cursor is None:
            plain = self._without_lmdb()
            return self.after(key, prefix) if plain is None else plain.after(key, prefix)
        try:
            found = cursor.set_range(max(key, prefix))
            at, value = cursor.item()  # empty if there is none
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
        """All rows from `start` on with their values, checksums not checked. To be gone before `renew` and `close`.

        Raises CorruptBlock.
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
        """The rows that begin with `prefix`, ascending, from `start` on. A few are read ahead, with the lock held
        for as long as `next` takes; if there is a commit in between, it goes on among the new rows."""
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
        """A row was not found. Raises CorruptBlock if damage may have led past it, and what LMDB raises.

        A damaged key no longer matches the checksum of its row, and stands where the right one stood: next to where
        that was looked for. A damaged key of a branch leads to where keys are out of order.
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
        """Check the row before or after the place where `key` would be, which is not there: its key may be damaged."""
        if (at < key) if greater else (at > key):
            raise CorruptBlock(
                f"{self.path}: {row_name(key)} cannot be looked for: {row_name(at)} is out of order"
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
        """In a forked child: drop the transaction without ending it, which belongs to the parent."""
        self._cursor = None  # in this order: each holds the next one
        self._txn = self._plain = None
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.let_go()


def _never_free(*objects: object) -> None:
    """In a forked child: freeing an environment waits for what threads of the parent were in the middle of, and these
    threads do not exist here. It cannot be opened again here then, and that is said (`_not_opened`)."""
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
