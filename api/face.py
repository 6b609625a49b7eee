"""The part that the sync and the asyncio face share: views on a core, and everything that does not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Self

from tidelog.aof.log import FSYNCED, POLICIES
from tidelog.aof.reading.reader import Epoch
from tidelog.api.encode import encode
from tidelog.api.idrange import IdRange
from tidelog.api.receipts import Receipt, followers, level_number
from tidelog.api.types import KeyT
from tidelog.engine.api import Context, Settings, State, decide_xadd_many, digest
from tidelog.engine.reply import Reply
from tidelog.store.acks import Replicated
from tidelog.store.commit.attached import Changing, Folding
from tidelog.store.commit.core import Answer, Core
from tidelog.store.commit.durability import Promise
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError, ResponseError

REDIS_VERSION = "8.8.0"
# CONFIG names of an embedded store, each with the setting that it reads and sets.
LIMITS = {name.replace("_", "-"): name for name in Settings.__slots__}


class Inside(NamedTuple):
    """The parts of a view on a store that its queues and schedules use.

    level        its durability level
    fulfils_each every reply goes through `fulfil`, also if the disk has it
    fulfilled    whether a promise is fulfilled already
    fulfil       wait until it is. For a view of asyncio this and the next two are awaitable
    wait         wait for a parked read
    call         run a command and shape its reply
    """

    core: Core
    db: int
    level: int
    fulfils_each: bool
    fulfilled: Callable[[Promise], bool]
    fulfil: Callable[..., Any]
    wait: Callable[..., Any]
    call: Callable[..., Any]


class Face:
    """A view on one open store: a database, a durability level, and whether receipts are kept.

    `db`, `at` and `receipts` return further views on the same store. Views are cheap, and many threads may share one.
    """

    # Store and AsyncStore define the following attributes. In AsyncStore they are awaitable.
    _add: Callable[..., Any]  # XADD of a mapping
    _call: Callable[..., Any]  # run a command and shape its reply
    _fulfil: Callable[..., Any]  # wait until a promise is fulfilled at this view's level
    _wait: Callable[..., Any]  # wait for a parked read
    execute_command: Callable[..., Any]

    def __init__(
        self,
        core: Core,
        *,
        decode: bool,
        db: int = 0,
        level: int = 0,
        opened_here: bool = False,
        replicated: Replicated | None = None,
        keeps_receipts: bool = False,
    ) -> None:
        self._core = core
        self._opened_here = opened_here
        self._decode = decode
        self._db = db
        self._level = level
        self._replicated = replicated  # what `_level` asks of followers
        self._keeps_receipts = keeps_receipts
        # every reply goes through `_fulfil`, also if the disk has it
        self._fulfils_each = keeps_receipts or replicated is not None
        self.last_receipt: Receipt | None = None
        """The receipt of the last write through a view of `receipts`, by any thread."""

    def _view(self, **changed: Any) -> Self:
        same: dict[str, Any] = {"decode": self._decode, "db": self._db, "level": self._level}
        same |= {"replicated": self._replicated, "keeps_receipts": self._keeps_receipts}
        return type(self)(self._core, **{**same, **changed})

    def db(self, number: int) -> Self:
        """The same store, another database.

        Args:
            number: 0 to 15.

        Raises:
            DataError: There is no such database.
        """
        count = len(self._core.state.databases)
        if not isinstance(number, int) or not 0 <= number < count:
            raise DataError(f"there is no database {number!r}; choose one from 0 to {count - 1}")
        return self._view(db=number)

    def at(
        self,
        level: str,
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> Self:
        """The same store, with replies at another durability level.

        At `replicated` a reply, also that of a read, waits until followers have confirmed what it says, besides the
        fsync policy of this store. If they do not in time, the call raises NotReplicated: it was stored here, and a
        write must not be repeated without looking.

        Args:
            level: `written` (the kernel has the data), `fsynced` (the disk has it) or `replicated` (followers have it,
                too). At a level below that of the fsync policy, reads may show data that a power cut still loses.
            replicas: How many followers.
            fsynced: Followers and this store have synced it to their disks. False: followers have written and applied
                it.
            timeout: Seconds or a timedelta to wait for followers; None = 10 seconds.

        Raises:
            DataError: The level is unknown, a number is invalid, or the store is read-only and has no followers.
        """
        number = level_number(level)
        replicated = followers(level, replicas, fsynced, timeout)
        if replicated is not None and self._core.acks.roles is None:
            raise DataError("this store is open read-only; only its writer has followers")
        return self._view(level=FSYNCED if fsynced else number, replicated=replicated)

    def _fulfilled_already(self, promise: Promise) -> bool:
        """Whether a promise is fulfilled at this view's level, so that `_fulfil` has nothing to do."""
        log, lsn, _ = promise
        return not self._fulfils_each and lsn <= self._core.durability.through(log, self._level)

    def receipts(self) -> Self:
        """The same store; after each write through this view, `last_receipt` is the receipt of that write."""
        return self._view(keeps_receipts=True)

    @property
    def fsync(self) -> str:
        """The fsync policy: `always`, `everysec` or `no`. Assign to change it until the store is closed.

        Raises:
            DataError: The policy is unknown.
            NotStored: The system gives the new policy no thread; the policy stays.
        """
        return self._core.log.policy

    @fsync.setter
    def fsync(self, policy: str) -> None:
        if policy not in POLICIES:
            raise DataError(f"fsync must be one of: {', '.join(POLICIES)}")
        self._core.set_policy(policy)  # type: ignore[arg-type]

    @property
    def closed(self) -> bool:
        """Whether the store was closed, or belongs to the parent process of a fork."""
        return self._core.ended

    def __reduce__(self) -> Any:
        raise TypeError(
            "a store cannot be pickled: its lock, files and threads belong to this process. In another process, "
            "open its path with read_only=True"
        )

    # --- for the faces

    def _inside(self) -> Inside:
        seen = self._core, self._db, self._level, self._fulfils_each
        return Inside(*seen, self._fulfilled_already, self._fulfil, self._wait, self._call)

    def _receive(self, promise: Promise, replicated: bool = False) -> None:
        if promise[2]:
            self.last_receipt = Receipt(self._core.acks, promise, replicated)

    def _everything(self) -> tuple[Promise, Epoch | None]:
        """The promise on all that was written, and the life of its last record."""
        checkpoints = self._core.checkpoints

        def newest(state: State) -> Epoch | None:
            return (
                checkpoints.epochs[-1] if checkpoints is not None and checkpoints.epochs else None
            )

        life, promise = self._core.look(newest)
        return promise, life

    def _many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> Answer:
        name = encode(key)
        if isinstance(rows, (Mapping, str, bytes)) or not isinstance(rows, Iterable):
            raise DataError(f"xadd_many needs an iterable of dicts, not {type(rows).__name__!r}")
        given = rows if isinstance(rows, list) else list(rows)

        def work(ctx: Context) -> Reply:
            try:
                return decide_xadd_many(ctx, name, given)
            except TypeError as error:
                raise DataError(str(error)) from error

        return self._core.decided(self._db, work)

    def _ids(self, reply: Reply) -> IdRange[Any]:
        ms, seq, count = reply
        return IdRange(ms, seq, count, self._decode)

    def _checkpoints(self) -> Folding:
        self._core.look(nothing)  # raises if the store is closed
        found = self._core.checkpoints
        if found is None:
            raise DataError(
                "this store is open read-only; only its writer makes checkpoints and snapshots"
            )
        return found

    def _roles(self) -> Changing:
        self._core.look(nothing)  # raises if the store is closed
        found = self._core.roles
        if found is None:
            raise DataError("this store is open read-only; it neither leads nor follows")
        return found

    def _digest(self) -> Answer:
        return self._core.look(digest)

    def _info(self) -> dict[str, Any]:
        """Does not wait, and does not check that the store is open or sound."""
        core, log = self._core, self._core.log
        nbytes, age = log.exposed()
        with core.lock:
            databases = {
                f"db{number}": {"keys": len(database.keys), "expires": len(database.expires)}
                for number, database in enumerate(core.state.databases)
                if database.keys
            }
            blocked = len(core.waiting.waiters())
        return {
            "redis_version": REDIS_VERSION,
            "fsync": log.policy,
            "next_lsn": log.next_lsn,
            "written_lsn": log.written_lsn,
            "synced_lsn": log.synced_lsn,
            "unsynced_bytes": nbytes,
            "unsynced_seconds": age,
            "epoch": core.state.epoch,
            "incarnation": f"{log.incarnation:016x}",
            "reloads": core.reloads,
            "failure": None if log.failure is None else str(log.failure),
            "blocked_clients": blocked,
            **(core.checkpoints.info() if core.checkpoints is not None else {}),
            **({} if core.roles is None else {"replication": core.roles.info()}),
            **databases,
        }

    def _config_get(self, patterns: tuple[str, ...]) -> dict[str, str]:
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise DataError(f"a pattern of config_get must be a str, not {pattern!r}")
        settings: dict[str, str] = {
            name: str(getattr(self._core.settings, slot)) for name, slot in LIMITS.items()
        }
        settings["appendfsync"] = self.fsync
        return {
            name: value
            for name, value in settings.items()
            if any(fnmatchcase(name, pattern.lower()) for pattern in patterns)
        }

    def _config_set(self, name: str, value: Any, more: tuple[Any, ...]) -> bool:
        if len(more) % 2:
            raise DataError("CONFIG SET needs a value for each name")
        self._core.look(nothing)  # raises if the store is closed
        pairs = [(name, value), *zip(more[::2], more[1::2], strict=True)]
        for option, setting in pairs:
            if option == "appendfsync":
                self.fsync = setting
            elif isinstance(option, str) and option in LIMITS and str(setting).isdigit():
                with self._core.lock:
                    setattr(self._core.settings, LIMITS[option], int(setting))
            else:
                raise ResponseError(f"CONFIG SET failed - cannot set '{option}' to '{setting}'")
        return True


def nothing(state: State) -> None:
    """Look at nothing. `Core.look` then returns only the promise on all applied units."""


def inside(face: Face) -> Inside:
    """The parts of a view that queues and schedules use."""
    return face._inside()
