"""Embedded: `tidelog.follow`: a store of this program follows a served one. Its link runs in a thread of its own.

It is a function and no method of a store, as `tidelog.serve` is: a store knows nothing of links.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.aof.errors import NoThread
from tidelog.aof.threads import start
from tidelog.api.aio import AsyncStore
from tidelog.api.aopening import Opening, aopen_store
from tidelog.api.opening import open_store
from tidelog.api.sync import Store
from tidelog.replication.dial import Address, address_of
from tidelog.replication.feed import TIMEOUT_S_MIN
from tidelog.replication.follower import take_up
from tidelog.replication.link import TIMEOUT_S, Link
from tidelog.replication.rejoin import SURPLUS_S
from tidelog.store.commit.core import Core
from tidelog.store.durations import seconds
from tidelog.store.errors import CannotOpen, DataError
from tidelog.store.lifetime import end
from tidelog.store.opening import AnyPath

_Face = TypeVar("_Face", Store, AsyncStore)
_FSYNC: Final = "always"
_turning: Final = threading.Lock()  # one call at a time changes which thread follows


class _Given(NamedTuple):
    """The options of the link that the caller gave: see `follow`."""

    leader: Address
    timeout_s: float
    compression: bool
    surplus_s: float
    verify_every_s: float


def _given(
    leader: Address,
    timeout: float | timedelta,
    compression: bool,
    surplus: float | timedelta,
    verify_every: float | timedelta | None,
) -> _Given:
    """Raises DataError."""
    timeout_s = seconds("timeout", timeout)
    if timeout_s < TIMEOUT_S_MIN:
        raise DataError(f"timeout must be at least {TIMEOUT_S_MIN:g} s, not {timeout!r}")
    if not isinstance(compression, bool):
        raise DataError(f"compression must be True or False, not {compression!r}")
    surplus_s = seconds("surplus", surplus, zero=True)
    every = 0.0 if verify_every is None else seconds("verify_every", verify_every)
    return _Given(leader, timeout_s, compression, surplus_s, every)


def follow(
    path: AnyPath | Store,
    leader: str,
    *,
    tls: ssl.SSLContext | bool | None = None,
    replace: bool = False,
    timeout: float | timedelta = TIMEOUT_S,
    compression: bool = False,
    surplus: float | timedelta = SURPLUS_S,
    verify_every: float | timedelta | None = None,
    fsync: str | None = None,
    **options: Any,
) -> Store:
    """Open a store in a directory, and let it follow a served store: it holds the same, a moment later.

        with tidelog.follow("orders-copy", "tidelog://10.0.0.1:6379") as db:
            for key, entries in db.xread({"orders": "$"}, block=0):
                print(entries)

    The store refuses writes until `promote` makes it a leader. The directory remembers its role. If it was promoted, it
    stays a leader, and a warning says so; if it follows another leader already, it goes on with that one.

    A store that is open follows this leader from now on, whatever its role is, as after REPLICAOF: a leader that was
    replaced by another one, or a follower that gets another leader. Its calls that wait to write fail with UNBLOCKED.

    Args:
        path: The directory. It is created if it is empty or missing; else it must hold a copy of the leader's store.
            Or an open store of this program that no server serves.
        leader: Where the leader is: `tidelog://[user:password@]host[:port]`.
        tls: True, or a context, to connect with TLS.
        replace: You agree that records which the leader's history does not have are set aside in `quarantine/`. It
            holds until the leader sends its records.
        timeout: Close the link when the leader was silent for so long (seconds or a timedelta, at least 2 s), and dial
            again.
        compression: Let the leader compress what it sends, for slow links. A server compresses only if it has
            `repl-compression yes`.
        surplus: Give up records that the leader has lost with its power, without asking, if they span at most so long
            (seconds or a timedelta). They are set aside in `quarantine/`.
        verify_every: Compare the data with the leader's so often (seconds or a timedelta); None = only when
            `tidelog replica verify` asks. Each comparison reads all data on both sides.
        fsync: As in `tidelog.open` (`always`): how safe is what the leader counts as fsynced here.
        **options: Further options of `tidelog.open`.

    Returns:
        The store. Close it: until then its thread follows.

    Raises:
        DataError: The address or an option is invalid, or the store is served or read-only.
        NotStored: The role of an open store could not be changed, for example because the disk is full (OutOfSpace).
        CannotOpen: As `tidelog.open`, or the system gives no thread.
    """
    link = _given(address_of(leader, tls), timeout, compression, surplus, verify_every)
    if isinstance(path, Store):
        return _turned(path, link, replace, _of_open(fsync, options))
    return _followed(open_store(path, fsync=fsync or _FSYNC, **options), link, replace)


def afollow(
    path: AnyPath | AsyncStore,
    leader: str,
    *,
    tls: ssl.SSLContext | bool | None = None,
    replace: bool = False,
    timeout: float | timedelta = TIMEOUT_S,
    compression: bool = False,
    surplus: float | timedelta = SURPLUS_S,
    verify_every: float | timedelta | None = None,
    fsync: str | None = None,
    **options: Any,
) -> Opening[AsyncStore]:
    """Open a store that follows a served one, for asyncio. As `tidelog.follow`.

    Returns:
        An object to `await` or to use in `async with`; the directory is opened then, in a thread.
    """
    link = _given(address_of(leader, tls), timeout, compression, surplus, verify_every)
    if isinstance(path, AsyncStore):
        store, given = path, _of_open(fsync, options)
        return Opening(lambda: _turned(store, link, replace, given))
    opening = aopen_store(path, fsync=fsync or _FSYNC, **options)
    return Opening(lambda: _followed(opening._open(), link, replace))


def _of_open(fsync: str | None, options: dict[str, Any]) -> list[str]:
    """The options of `tidelog.open` that were given."""
    return [*(["fsync"] if fsync is not None else []), *options]


def _turned(store: _Face, link: _Given, replace: bool, given: list[str]) -> _Face:
    """The open store, which follows this leader from now on."""
    if given:
        raise DataError(
            f"{given[0]} cannot be set here: the store is open already, so set it in tidelog.open"
        )
    roles, core = store._roles(), store._core
    with _turning:
        if core.served_at is not None:
            raise DataError(
                "a server serves this store and makes its links: send REPLICAOF to it, and set its options masteruser "
                "and masterauth, or close it first"
            )
        before = _LinkThread.of(core)
        if before is not None:
            before.stop()
        try:
            to = link.leader
            roles.follow(to.host, to.port, "followed by tidelog.follow", consent=replace)
        except BaseException:
            if before is not None and core.following is not None:
                _LinkThread(core, before.given)
            raise
        _LinkThread(core, link)
    return store


def _followed(store: _Face, link: _Given, replace: bool) -> _Face:
    """The store, once it has its role and its link."""
    core = store._core
    try:
        take_up(core, link.leader.host, link.leader.port, "followed by tidelog.follow")
        if core.following is not None:
            assert core.roles is not None
            core.roles.consent = replace
            _LinkThread(core, link)
    except NoThread as error:
        end(core)
        raise CannotOpen(str(error)) from error
    except BaseException:
        end(core)
        raise
    return store


class _LinkThread:
    """Runs the link of one store, until the store leads or is closed.

    given     what the caller wants; the role names host and port of the leader
    """

    def __init__(self, core: Core, given: _Given) -> None:
        assert core.roles is not None
        self._core, self._roles = core, core.roles
        self.given = given
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._roles.changed.append(self._changed)
        self._thread = threading.Thread(target=self._run, name="tidelog-follow", daemon=True)
        start(self._thread, "follow the leader")
        self._ready.wait()

    @staticmethod
    def of(core: Core) -> _LinkThread | None:
        """The one that runs the link of this store now."""
        settings = getattr(core.link, "settings", None)
        return settings if isinstance(settings, _LinkThread) else None

    def stop(self) -> None:
        """End the link, and wait until its thread has ended."""
        assert self._loop is not None and self._link is not None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._link.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner, suppress(asyncio.CancelledError):
                runner.run(self._follow())
        finally:
            self._roles.changed.remove(self._changed)
            self._core.link = None
            self._ready.set()

    async def _follow(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = self._core.link = Link(self._core, self)
        self._ready.set()
        await self._link.ended

    def _changed(self) -> None:
        """[lock] The role changed, or the leader's address. From any thread."""
        if self._loop is not None and self._link is not None:
            try:
                self._loop.call_soon_threadsafe(self._link.redial)
            except RuntimeError:
                pass  # the loop is closed

    # --- what the link asks

    def address(self) -> Address:
        """See `replication.link.Settings`."""
        role = self._roles.role
        return self.given.leader._replace(host=role.host, port=role.port)

    def announced(self) -> tuple[str, int]:
        """See `replication.link.Settings`."""
        served_at = self._core.served_at
        return ("", 0) if served_at is None else served_at()

    def timeout_s(self) -> float:
        """See `replication.link.Settings`."""
        return self.given.timeout_s

    def compress(self) -> bool:
        """See `replication.link.Settings`."""
        return self.given.compression

    def verify_every_s(self) -> float:
        """See `replication.link.Settings`."""
        return self.given.verify_every_s

    def surplus_s(self) -> float:
        """See `replication.link.Settings`."""
        return self.given.surplus_s
