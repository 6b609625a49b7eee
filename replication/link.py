"""Link: a follower's connections to its leader, over asyncio: connect, shake hands, pass bytes, try again.

The only module of this folder with sockets. It runs in one event loop: a server's, or that of a thread beside an
embedded store (replication/embedded.py). replication/follower.py gives the bytes their meaning. Frames are applied for
half a millisecond at a time, so that commands run in between.

A link that was up is dialled again at once, then every 50 to 100 ms, so that it soon goes on after a short fault or a
restart of the leader. After two seconds the pauses double up to 5 s. They have jitter, so that the followers of a
leader that restarts do not all come at one moment. The host's name is looked up each time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
from collections.abc import Callable
from functools import partial, wraps
from typing import Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import FSYNCED, Log
from tidelog.replication.dial import Address, Replies, give_up_after, greeting
from tidelog.replication.errors import Different, LinkError, NoRoom, Parted, Refused
from tidelog.replication.follower import ERRORS, Follower
from tidelog.replication.resync import Resyncing
from tidelog.resp import hints
from tidelog.resp.commands import encoded
from tidelog.store.commit.core import Core
from tidelog.store.threads import in_thread, seen

WORK_S: Final = 0.0005  # frames are applied for so long before commands run again
TICK_S: Final = 0.1  # how often an idle link looks at its timers
TIMEOUT_S: Final = 10.0  # the default of `repl-timeout`
STALLED_S: Final = 0.02  # pause of a follower with a full disk, or with more memory than its budget
PAUSE_S: Final = 0.1  # between two attempts; jitter takes away up to a half
PROMPT_S: Final = 2.0  # after so long without a link, the pauses double
PAUSE_S_MAX: Final = 5.0
REFUSED_PAUSE_S: Final = 1.0  # before the next attempt after the leader has refused
VERIFY_S_MAX: Final = 6 * 3600.0  # a comparison that takes longer is given up
STEADY_S: Final = 1.0  # a link that lasted so long is dialled again at once

# The states of a link, by the names that ROLE shows.
CONNECT: Final = "connect"  # not connected; it will try again
CONNECTING: Final = "connecting"
HANDSHAKE: Final = "sync"  # connected; the leader has not accepted yet
UP: Final = "connected"
ENDED: Final = "none"

T = TypeVar("T")
P = ParamSpec("P")

_logger = logging.getLogger("tidelog.replication")


class Settings(Protocol):
    """A link asks its owner for these each time it needs them, since options may change."""

    def address(self) -> Address:
        """Where the leader is. Raises LinkError."""

    def announced(self) -> tuple[str, int]:
        """Host and port at which this follower serves clients. "": as the leader sees it; port 0: none."""

    def timeout_s(self) -> float:
        """Seconds of silence after which the link is closed."""

    def compress(self) -> bool:
        """Whether the leader may compress what it sends."""

    def verify_every_s(self) -> float:
        """Seconds between two comparisons of the data with the leader's; 0: none by itself."""

    def surplus_s(self) -> float:
        """Seconds of records that are given up without asking, if a leader has lost them with its power."""


class Connected(NamedTuple):
    """One connection to the leader: the leader's address, the own one, the descriptor, and when it was opened."""

    peer: object
    own: object
    fd: int
    opened_at: float


class Link:
    """One follower's link, until `stop`. Create it in the loop's thread. Other threads may read its attributes.

    state        CONNECT, CONNECTING, HANDSHAKE, UP or ENDED
    failure      why the last attempt or connection ended; "" while the link is up
    down_since   the loop's time at which the link went down; None while it is up
    attempts     connections that were tried
    address      of the leader at the last attempt
    connected    the connection over which the leader sends; None while there is none
    follower     what was received
    ended        done when the store leads or is closed, or after `stop`
    """

    def __init__(
        self, core: Core, settings: Settings, moved: Callable[[], object] = lambda: None
    ) -> None:
        """`moved` is called after frames were applied."""
        self.state = CONNECT
        self.failure = ""
        self.attempts = 0
        self.address: Address | None = None
        self.connected: Connected | None = None
        self.core = core
        self.settings = settings
        self.moved = moved
        self.follower = Follower(core, settings.announced, settings.surplus_s, settings.compress)
        self.loop = asyncio.get_running_loop()
        self.down_since: float | None = self.loop.time()
        self._wire: _Wire | None = None
        self._resync: asyncio.Future[None] | None = None  # the thread of a resync
        self._said = ""
        self._verifying: asyncio.Task[int] | None = None
        self._verified_at = self.loop.time()
        self.ended: asyncio.Task[None] = self.loop.create_task(self._run())

    @property
    def up(self) -> bool:
        """Whether frames arrive."""
        return self.state == UP

    @property
    def resyncing(self) -> Resyncing | None:
        """The copy of the leader's data that this store is getting."""
        resync = self._resync
        return None if resync is None or resync.done() else self.follower.resyncing

    def stop(self) -> None:
        """End the link. Idempotent."""
        self.state = ENDED
        self.ended.cancel()
        if self._verifying is not None:
            self._verifying.cancel()
        self._hang_up("the link was ended")

    def redial(self, why: str = "the role of this store has changed") -> None:
        """Connect anew, because the leader's address may be another one."""
        self._hang_up(why)

    def kill(self) -> None:
        """End the connection; the next one begins soon. From any thread."""
        try:
            self.loop.call_soon_threadsafe(self.redial, "CLIENT KILL ended it")
        except RuntimeError:
            pass  # the loop is closed

    def _hang_up(self, why: str) -> None:
        if self.follower.resyncing is not None:
            self.follower.resyncing.cancel(LinkError(why))
        if self._wire is not None and not self._wire.promoting:
            self._wire.fail(LinkError(why))

    # --- the data is compared with the leader's

    def verify(self) -> concurrent.futures.Future[int]:
        """Compare the data with the leader's. The result is the LSN at which they agree. From any thread.

        It fails with Different (and the link ends), another LinkError, or ProtocolError.
        """
        return asyncio.run_coroutine_threadsafe(self._verify_once(), self.loop)

    def verify_if_due(self) -> None:
        """Called some times a second while frames arrive."""
        every, now = self.settings.verify_every_s(), self.loop.time()
        if not every or self._verifying is not None:
            return
        if now - self._verified_at >= every:
            self._begin_to_verify().add_done_callback(self._told_of)

    def _told_of(self, verifying: asyncio.Task[int]) -> None:
        """A comparison that nobody waits for has ended."""
        error = None if verifying.cancelled() else verifying.exception()
        if error is not None and not isinstance(error, Different):  # `_verify` has told of that
            broken = None if isinstance(error, ERRORS) else error
            _logger.warning(
                "%s was not compared with its leader: %s",
                *(self.core.root, error if broken is None else repr(error)),
                exc_info=broken,
            )

    async def _verify_once(self) -> int:
        """Begin, or wait for the comparison that is under way."""
        return await asyncio.shield(self._verifying or self._begin_to_verify())

    def _begin_to_verify(self) -> asyncio.Task[int]:
        self._verifying = task = self.loop.create_task(self._verify())
        return task

    async def _verify(self) -> int:
        roles = self.core.roles
        assert roles is not None
        try:
            async with asyncio.timeout(VERIFY_S_MAX):
                lsn = await self._compare()
        except Different as error:
            roles.differs = error
            _logger.error("%s: %s", self.core.root, error)
            if self._wire is not None and not self._wire.promoting:
                self._wire.fail(error)
            raise
        except TimeoutError:
            raise LinkError(f"the leader did not verify within {VERIFY_S_MAX:g} s") from None
        finally:
            self._verifying = None
            self._verified_at = self.loop.time()
        roles.agreed = lsn
        _logger.info("%s and its leader hold the same at LSN %d", self.core.root, lsn)
        return lsn

    async def _compare(self) -> int:
        from tidelog.replication.verify import ATTEMPTS, Comparison  # most followers never do this

        what = "compare the data with the leader's"
        for _ in range(ATTEMPTS):
            comparison = Comparison(self.core)
            try:
                place = await self.in_thread(comparison.begin, what)
                line = await self._ask(place.words())
                least = comparison.again_from(line)
                agreed = None
                if least is None:
                    agreed = await self.in_thread(partial(comparison.conclude, line), what)
            finally:
                comparison.end()
            if agreed is not None:
                return agreed
            while least is not None and self.core.log.written_lsn < least:
                await asyncio.sleep(TICK_S)
        raise LinkError(f"checkpoints overtook the comparison {ATTEMPTS} times")

    async def _ask(self, words: list[bytes]) -> bytes:
        """The line with which the leader answers a command, over a connection of its own. Raises LinkError."""
        address, timeout = self.settings.address(), self.settings.timeout_s()
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.host if address.tls else None,
                )
        except (OSError, ValueError) as error:
            raise LinkError(_not_reached(address, error)) from error
        replies, greeted = Replies(), False
        try:
            writer.write(greeting(address) + encoded(words))
            while data := await reader.read(1 << 16):
                replies.put(data)
                while (line := replies.take()) is not None:
                    if greeted or line.startswith(b"-"):
                        return line
                    greeted = True
        except OSError as error:
            raise LinkError(f"{address}: {error.strerror or error}") from error
        finally:
            writer.close()
        raise LinkError("the leader closed the connection")

    def begin_resync(self, wire: _Wire) -> None:
        """The leader sends a copy of its data over this connection."""
        self._resync = self.in_thread(self.follower.resync)
        self._resync.add_done_callback(lambda _: wire.fail(LinkError("the resync has ended")))

    def in_thread(
        self, work: Callable[[], T], what: str = "copy the leader's data"
    ) -> asyncio.Future[T]:
        """Run `work` in a daemon thread. The future's error is NoThread if the system gives none."""
        future = in_thread(work, what, "tidelog-resync")
        future.add_done_callback(seen)
        return future

    async def _run(self) -> None:
        core = self.core
        pause = 0.0
        lacking_since = self.loop.time()  # since when there was no link that lasted
        try:
            while not core.ended and core.following is not None:
                try:
                    end = await self._attempt()
                except Exception as error:
                    # A fault of tidelog must not end the attempts: the follower would stay behind for ever.
                    self._down(error)
                    end = _End(REFUSED_PAUSE_S)
                if end.at_once:
                    continue
                now = self.loop.time()
                if end.lasted:
                    pause, lacking_since = 0.0, now
                else:
                    pause = max(_pause_after(pause, now - lacking_since), end.pause_s_min)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        finally:
            self.state, self.connected = ENDED, None

    async def _attempt(self) -> _End:
        """Connect, wait for the end of the connection, and do the slow work that the leader's reply asks for."""
        follower = self.follower
        self.state, self.connected = CONNECTING, None
        self.attempts += 1
        began, applied = self.loop.time(), follower.frames_bytes
        least, broken = 0.0, False
        try:
            await self._connected()
        except Exception as error:
            broken = not isinstance(error, ERRORS)
            refused = isinstance(error, Refused | Parted | Different)
            if refused or broken:
                least = REFUSED_PAUSE_S
            if refused or broken or self._resync is None:
                self._down(error)
        if self._resync is not None:
            try:
                await self._resynced()
                return _AT_ONCE
            except ERRORS as error:
                self._down(error)
                if isinstance(error, NoRoom) or not isinstance(error, LinkError):
                    least = REFUSED_PAUSE_S
                    began = self.loop.time()  # a long attempt that failed was no link
        if follower.heir_leads is not None:
            try:
                await self.in_thread(follower.settle, "learn who leads")
                return _AT_ONCE
            except ERRORS as error:
                self._down(error)
        if follower.parted is not None:
            try:
                await self.in_thread(follower.rejoin, "set records aside")
                return _AT_ONCE
            except Refused as error:
                self._down(error)
                least = REFUSED_PAUSE_S
            except ERRORS as error:
                self._down(error)
        lasted = follower.frames_bytes > applied or self.loop.time() - began > STEADY_S
        return _End(least, lasted=lasted and not broken)

    async def _resynced(self) -> None:
        """Wait for the thread of a resync, which goes on without the link if it has fetched everything."""
        resync = self._resync
        assert resync is not None
        try:
            await asyncio.shield(resync)
        finally:
            if resync.done():
                self._resync = None

    def _down(self, error: BaseException) -> None:
        self.state, self.connected = CONNECT, None
        if self.core.ended or self.core.following is None:
            return  # the end of following, and not of a connection
        broken = not isinstance(error, ERRORS)
        self.failure = f"a fault of tidelog: {error!r}" if broken else str(error) or repr(error)
        if self.down_since is None:
            self.down_since = self.loop.time()
        if self.failure != self._said:  # the same again is no news
            self._said = self.failure
            _logger.log(
                logging.ERROR if broken else logging.WARNING,
                "the link to the leader %s is down: %s",
                *(self.address or "", self.failure),
                exc_info=error if broken else None,
            )

    def came_up(self) -> None:
        """The leader sends its frames."""
        self.state, self.failure, self._said, self.down_since = UP, "", "", None
        _logger.info("following the leader %s", self.address)
        self.in_thread(self.follower.clear)

    async def _connected(self) -> None:
        """Connect, and raise why the connection ended."""
        self.follower.check()
        address = self.address = self.settings.address()
        timeout = self.settings.timeout_s()
        self._wire = wire = _Wire(self)
        try:
            async with asyncio.timeout(timeout):
                await self.loop.create_connection(
                    lambda: wire,
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.host if address.tls else None,
                )
        except (OSError, ValueError) as error:
            wire.fail(LinkError(_not_reached(address, error)))
        await wire.ended


class _End(NamedTuple):
    """How an attempt ended.

    pause_s_min   before the next one
    at_once       the next one begins without a pause
    lasted        frames came, or the connection stood for some time
    """

    pause_s_min: float
    at_once: bool = False
    lasted: bool = False


_AT_ONCE: Final = _End(0.0, at_once=True)


def _ending(
    callback: Callable[Concatenate[_Wire, P], None],
) -> Callable[Concatenate[_Wire, P], None]:
    """Let every exception of a callback end the connection, and `Link` tell of it. The loop would only log it, and the
    follower would look connected and receive nothing."""

    @wraps(callback)
    def run(self: _Wire, /, *args: P.args, **options: P.kwargs) -> None:
        try:
            callback(self, *args, **options)
        except StopIteration as error:
            self.fail(RuntimeError(repr(error)))  # no future takes a StopIteration
        except Exception as error:
            self.fail(error)

    return run


class _Wire(asyncio.Protocol):
    """One connection to the leader.

    ended     fails when the connection has ended, with the error that says why
    """

    def __init__(self, link: Link) -> None:
        self._link, self._follower = link, link.follower
        self._loop = link.loop
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.ended.add_done_callback(seen)
        self._replies = Replies()
        self._greeted = self._accepted = False
        self._working: asyncio.Handle | None = None
        self._acking: asyncio.TimerHandle | None = None
        self._acking_at = 0.0  # when it is due
        self._ticking: asyncio.TimerHandle | None = None
        self._syncing: Log | None = None  # the log whose next sync calls `_synced`
        self._reading = True
        self._resyncing: Resyncing | None = None  # this connection brings a copy
        self._promoting: asyncio.Future[bytes] | None = None  # the thread of a promotion
        self._opened_at = 0.0
        self._transport: asyncio.Transport | None = None

    # --- the connection

    @_ending
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        if self.ended.done():
            transport.abort()
            return
        link = self._link
        peer = transport.get_extra_info("socket")
        if peer is not None:
            give_up_after(peer, link.settings.timeout_s())
        link.state = HANDSHAKE
        self._opened_at = self._loop.time()
        assert link.address is not None
        transport.write(greeting(link.address))
        self._tick()

    @_ending
    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        now = self._loop.time()
        try:
            if not self._accepted:
                data = self._shake(data, now)
                if not self._accepted:
                    return
            if self._resyncing is not None:
                self._resyncing.receive(data, now)
                self._follower.heard_at = now
                self._brake()
                return
            self._follower.receive(data, now)
        except ERRORS:
            self._work()  # what came before
            raise
        if self._working is None:
            self._work()

    def _shake(self, data: bytes, now: float) -> bytes:
        """Go on with the handshake. Returns what came behind it."""
        assert self._transport is not None
        self._replies.put(data)
        while not self._accepted and (line := self._replies.take()) is not None:
            if self._greeted:
                self._follower.answered(line, now)
                self._accepted = True
                self._link.connected = Connected(
                    self._transport.get_extra_info("peername"),
                    self._transport.get_extra_info("sockname"),
                    self._transport.get_extra_info("socket").fileno(),
                    self._opened_at,
                )
                self._resyncing = self._follower.resyncing
                if self._resyncing is None:
                    self._link.came_up()
                else:
                    self._resyncing.wake = self._woken
                    self._link.begin_resync(self)
            else:
                if line.startswith(b"-"):
                    text = line[1:].decode(errors="replace")
                    raise Refused(f"the leader refuses the connection: {text}")
                self._greeted = True
                self._transport.write(encoded(self._follower.hello()))
        return bytes(self._replies.buffered)

    def connection_lost(self, error: Exception | None) -> None:
        address = self._link.address
        silent = not self._greeted and not self._replies.buffered
        tls = address is not None and address.tls is not None
        did = hints.closed(hints.LINK if silent else None, tls=tls)
        self.fail(error or LinkError(f"the leader {did}"))

    @property
    def promoting(self) -> bool:
        """Whether this store becomes the leader, because its leader said so. The answer is still to be sent."""
        return self._promoting is not None and not self._promoting.done()

    def fail(self, error: BaseException, politely: bool = False) -> None:
        """End the connection. Idempotent. `politely`: send what was written before."""
        for timer in (self._working, self._acking, self._ticking):
            if timer is not None:
                timer.cancel()
        if not self.ended.done():
            self.ended.set_exception(error)
        if self._resyncing is not None:
            self._resyncing.fail(error)
        if self._transport is not None:
            last = b"" if self._transport.is_closing() else self._follower.last_words(error)
            if last:
                self._transport.write(last)
            self._transport.close() if politely or last else self._transport.abort()

    @_ending
    def _tick(self) -> None:
        self._ticking = self._loop.call_later(TICK_S, self._tick)
        link, now = self._link, self._loop.time()
        timeout = link.settings.timeout_s()
        if self.promoting:
            return
        if link.core.ended or link.core.following is None:
            self.fail(LinkError("this store no longer follows"))
        elif not self._accepted:
            if now - self._opened_at > timeout:
                self.fail(LinkError(f"the leader has not accepted within {timeout:g} s"))
        elif self._resyncing is not None:
            if now - self._follower.heard_at > timeout and self._reading:
                self.fail(LinkError(f"the leader was silent for {timeout:g} s"))
            else:
                self._fetch()
        elif self._follower.overdue(now, timeout) and self._reading:
            self.fail(LinkError(f"the leader was silent for {timeout:g} s"))
        else:
            self._follower.check()  # a failed fsync of the log's own thread is seen here
            link.verify_if_due()
            if self._working is None:
                self._work()

    # --- a copy of the leader's data

    def _woken(self) -> None:
        """The thread of a resync has something to send, or has taken what came."""
        try:
            self._loop.call_soon_threadsafe(self._fetch)
        except RuntimeError:
            pass  # the loop is closed

    @_ending
    def _fetch(self) -> None:
        resyncing = self._resyncing
        if self.ended.done() or resyncing is None or self._transport is None:
            return
        data = resyncing.send(self._loop.time())
        if data:
            self._transport.write(data)
        self._brake()

    # --- frames

    @_ending
    def _work(self) -> None:
        """Apply what arrived, and acknowledge it. Goes on in a later round of the loop if that takes long."""
        self._working = None
        if self.ended.done() or not self._accepted or self._promoting is not None:
            return
        follower = self._follower
        try:
            more = follower.work(WORK_S, self._loop.time())
        finally:
            self._link.moved()
        if more:
            pause = STALLED_S if follower.stalled else 0.0
            self._working = self._loop.call_later(pause, self._work)
        self._brake()
        self._sync()
        self._ack()
        if follower.told_to_lead:
            self._promoting = self._link.in_thread(follower.promotion(), "become the leader")
            self._promoting.add_done_callback(self._promoted)

    @_ending
    def _promoted(self, promoting: asyncio.Future[bytes]) -> None:
        error = promoting.exception()
        if error is not None:
            _logger.warning("the leader hands over, but this store cannot lead: %s", error)
            self.fail(error)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(promoting.result())
            self.fail(LinkError("this store leads"), politely=True)

    def _brake(self) -> None:
        """Stop reading while too much waits to be applied."""
        assert self._transport is not None
        source = self._follower if self._resyncing is None else self._resyncing
        reading = not source.full
        if reading != self._reading and not self._transport.is_closing():
            self._reading = reading
            if reading:
                self._follower.heard_at = self._loop.time()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # --- acknowledgements

    def _sync(self) -> None:
        """Under `always`, have the log synced now, so that the leader learns of it soon."""
        core = self._link.core
        log = core.log
        if core.durability.relaxed or log.written_lsn <= log.synced_lsn or log.sync_if_quick():
            return
        if self._syncing is not log:
            self._syncing = log
            log.subscribe(log.written_lsn, FSYNCED, self._synced)

    def _synced(self, error: LogPoisoned | None) -> None:
        """A sync ended. Called from the log's own thread or the loop's."""
        try:
            self._loop.call_soon_threadsafe(self._go_on)
        except RuntimeError:
            pass  # the loop is closed

    @_ending
    def _go_on(self) -> None:
        self._syncing = None
        if not self.ended.done():
            self._sync()  # what was appended meanwhile
            self._ack()

    @_ending
    def _ack(self) -> None:
        if self.ended.done() or self._transport is None or self._promoting is not None:
            return
        now = self._loop.time()
        data = self._follower.send(now)
        if data:
            self._transport.write(data)
            return
        pause = self._follower.unsaid_s(now)
        if pause is not None and (self._acking is None or now + pause < self._acking_at):
            if self._acking is not None:
                self._acking.cancel()
            self._acking_at = now + pause
            self._acking = self._loop.call_later(pause, self._ack_again)

    def _ack_again(self) -> None:
        self._acking = None
        self._ack()


def _not_reached(address: Address, error: OSError | ValueError) -> str:
    """Why no connection to this address could be made. A ValueError is a host name that no DNS can have."""
    if isinstance(error, OSError):
        return f"{address}: {hints.reason(error, hints.LINK, tls=address.tls is not None)}"
    return f"{address}: {address.host!r} cannot be the name of a host ({error})"


def _pause_after(pause: float, lacking_s: float) -> float:
    """The pause behind this one, without jitter, if there has been no link for so long."""
    return PAUSE_S if lacking_s < PROMPT_S else min(max(2 * pause, PAUSE_S), PAUSE_S_MAX)
