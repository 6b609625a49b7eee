"""Publish and subscribe: subscriptions, message delivery, and keyspace event messages (spec 15).

Everything except `_collect` runs in the event loop's thread. The store calls `_collect` under its lock, from the thread
that runs the command, which may be another thread of the embedding program. It only queues events. `deliver` runs at
the end of a turn and before anything that must come after the events; it publishes the events whose unit is in the
log. The messages are sent when the promise of that unit holds, like the unit's own reply.

Delivery is best effort: if a unit breaks off and memory is rebuilt from the log, undelivered events are dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import TYPE_CHECKING

from tidelog.engine.effects.effect import Effect
from tidelog.engine.effects.events import Event, Notifications, events
from tidelog.engine.errors import CommandError
from tidelog.engine.glob import matcher
from tidelog.engine.keys.state import State
from tidelog.engine.reply import Reply, Status
from tidelog.server.monitoring.slowlog import redacted
from tidelog.server.table import TABLE
from tidelog.server.wire.replies import Push
from tidelog.store.commit.promise import Promise
from tidelog.store.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.server.server import Server
    from tidelog.server.session import Session

# The subscribers of one name, in order of subscription.
_Listeners = dict["Session", None]


class PubSub:
    """The subscriptions of a server. Create it in the loop's thread.

    channels, shard_channels    name -> sessions     patterns    pattern -> sessions
    """

    def __init__(self, server: Server) -> None:
        self.channels: dict[bytes, _Listeners] = {}
        self.patterns: dict[bytes, _Listeners] = {}
        self.shard_channels: dict[bytes, _Listeners] = {}
        self._matchers: dict[bytes, Callable[[bytes], object]] = {}  # of `patterns`
        self._core = server.core
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._notifications = Notifications()
        self._collected: deque[tuple[int, Event]] = deque()  # with `Core.reloads` at that time
        self._woken = False  # a call of `deliver` is scheduled

    # --- subscriptions

    def subscribe(self, session: Session, channel: bytes) -> None:
        """Subscribe a session to a channel."""
        session.channels.add(channel)
        self.channels.setdefault(channel, {})[session] = None

    def unsubscribe(self, session: Session, channel: bytes) -> None:
        """Undo the subscription, if there is one."""
        session.channels.discard(channel)
        _drop(self.channels, channel, session)

    def psubscribe(self, session: Session, pattern: bytes) -> None:
        """Subscribe a session to every channel that the pattern matches (engine.glob)."""
        session.patterns.add(pattern)
        self.patterns.setdefault(pattern, {})[session] = None
        self._matchers[pattern] = matcher(pattern)

    def punsubscribe(self, session: Session, pattern: bytes) -> None:
        """Undo the subscription, if there is one."""
        session.patterns.discard(pattern)
        _drop(self.patterns, pattern, session)
        if pattern not in self.patterns:
            self._matchers.pop(pattern, None)

    def ssubscribe(self, session: Session, channel: bytes) -> None:
        """Subscribe a session to a shard channel. Without a cluster these differ only in having their own namespace."""
        session.shard_channels.add(channel)
        self.shard_channels.setdefault(channel, {})[session] = None

    def sunsubscribe(self, session: Session, channel: bytes) -> None:
        """Undo the subscription, if there is one."""
        session.shard_channels.discard(channel)
        _drop(self.shard_channels, channel, session)

    def leave(self, session: Session) -> None:
        """Remove all subscriptions of a session: it ends, or RESET."""
        for channel in list(session.channels):
            self.unsubscribe(session, channel)
        for pattern in list(session.patterns):
            self.punsubscribe(session, pattern)
        for channel in list(session.shard_channels):
            self.sunsubscribe(session, channel)

    def counts(self) -> tuple[int, int, int]:
        """Number of channels, patterns and shard channels with subscribers."""
        return len(self.channels), len(self.patterns), len(self.shard_channels)

    # --- messages

    def publish(self, channel: bytes, message: bytes, promise: Promise | None = None) -> int:
        """Send a message to all subscribers and return their number. With a promise, it is sent once that holds."""
        reached = _send(self.channels.get(channel), Push([b"message", channel, message]), promise)
        for pattern, matches in self._matchers.items():
            if matches(channel):
                push = Push([b"pmessage", pattern, channel, message])
                reached += _send(self.patterns[pattern], push, promise)
        return reached

    def spublish(self, channel: bytes, message: bytes, promise: Promise | None = None) -> int:
        """As `publish`, to a shard channel; patterns do not match those."""
        push = Push([b"smessage", channel, message])
        return _send(self.shard_channels.get(channel), push, promise)

    def show(
        self, session: Session, args: list[bytes], db: int, monitors: Iterable[Session]
    ) -> None:
        """Show `monitors` a command that a session runs in database `db`."""
        line = monitor_line(session, args, db, self._core.time_ns() // 1000)
        if line is not None:
            for monitor in monitors:
                _push(monitor, Status(line))

    # --- keyspace events

    def set_notifications(self, flags: str) -> None:
        """Apply notify-keyspace-events. Raises ValueError (engine.effects.events)."""
        self._notifications = Notifications(flags)
        self._core.landing.listener = self._collect if self._notifications.wanted else None

    def _collect(self, effect: Effect, state: State, now: int) -> None:
        """[lock] Queue the events of an effect that is about to be applied."""
        if not self.channels and not self.patterns:
            return
        classes = self._notifications.classes
        wanted = [event for event in events(effect, state, now) if event[0] in classes]
        if not wanted:
            return
        reloads = self._core.reloads
        self._collected.extend([(reloads, event) for event in wanted])
        if not self._woken:
            self._woken = True
            if get_ident() == self._thread:
                self._loop.call_soon(self.deliver)
            else:
                try:
                    self._loop.call_soon_threadsafe(self.deliver)
                except RuntimeError:
                    pass  # the loop is closed: there are no subscribers

    @property
    def waiting(self) -> bool:
        """Whether there are events to `deliver`."""
        return bool(self._collected)

    def deliver(self) -> None:
        """Publish the events of all units so far."""
        if not self._collected:
            return
        try:
            told, promise = self._core.look(self._take)
        except TidelogError:  # clients learn of the store's end in another way
            self._collected.clear()
            self._woken = False
            return
        messages = self._notifications.messages
        for event in told:
            for channel, message in messages(event):
                self.publish(channel, message, promise)

    def _take(self, state: State) -> list[Event]:
        """[lock] Take the queued events, without those from before memory was last rebuilt."""
        reloads = self._core.reloads
        told = [event for of, event in self._collected if of == reloads]
        self._collected.clear()
        self._woken = False
        return told

    def close(self) -> None:
        """Detach from the store, which may go on without the server."""
        self._core.landing.listener = None
        self._collected.clear()


def _drop(registry: dict[bytes, _Listeners], name: bytes, session: Session) -> None:
    listeners = registry.get(name)
    if listeners is not None:
        listeners.pop(session, None)
        if not listeners:
            del registry[name]


def _send(listeners: _Listeners | None, push: Push, promise: Promise | None) -> int:
    if not listeners:
        return 0
    for session in listeners:
        if promise is not None:
            log, lsn, _ = promise
            session.connection.rests_on(log, lsn, False)
        _push(session, push)
    return len(listeners)


def _push(session: Session, message: Reply) -> None:
    """Push an unsolicited message. Only the output limit bounds these, and the periodic check would come too late, so
    check the limit here."""
    connection = session.connection
    if connection.closing:
        return
    session.push(message)
    if connection.full:
        session.server.check_behind(session)


# --- MONITOR

# Redis's escapes in quoted strings.
_ESCAPES = {
    **{byte: b"\\x%02x" % byte for byte in range(256) if not 0x20 <= byte < 0x7F},
    **{
        ord(char): b"\\" + name
        for char, name in zip('\\"\n\r\t\a\b', (b"\\", b'"', b"n", b"r", b"t", b"a", b"b"))
    },
}


def monitor_line(session: Session, args: list[bytes], db: int, now_us: int) -> bytes | None:
    """MONITOR's line for a command at `now_us`, unix microseconds, secrets redacted. None for admin commands."""
    try:
        command = TABLE.resolve(args)
    except CommandError:
        return None
    if "admin" in command.flags:
        return None
    connection = session.connection
    addr = connection.addr.encode()
    if connection.kind == "unix":
        addr = b"unix:" + addr.removesuffix(b":0")
    seconds, us = divmod(now_us, 1_000_000)
    shown = b" ".join([quoted(arg) for arg in redacted(args)])
    return b"%d.%06d [%d %b] %b" % (seconds, us, db, addr, shown)


def quoted(raw: bytes) -> bytes:
    """Quote bytes as Redis does in its logs: in double quotes, unprintable bytes as \\xhh."""
    if raw.isalnum() and raw.isascii():
        return b'"%b"' % raw
    return b'"%b"' % b"".join([_ESCAPES.get(byte) or bytes((byte,)) for byte in raw])
