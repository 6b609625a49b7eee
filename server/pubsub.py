"""Publish and subscribe: subscriptions, message delivery, and keyspace event messages (spec 15).

Everything except `_collect` runs in the event loop's thread. The store calls `_collect` under its lock, from the thread
that runs the command, which may be another thread of the embedding program. It only queues events. `deliver` runs at
the end of a turn and before anything that must come after the events; it publishes the events whose unit is in the
log. The messages are sent when the promise of that unit is fulfilled, like the unit's own reply.

Delivery is best effort: if a unit breaks off and memory is rebuilt from the log, undelivered events are dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Protocol

from tidelog.engine.api import SERIES, Effect, Event, Notifications, State, events
from tidelog.engine.glob import matcher
from tidelog.engine.reply import Reply
from tidelog.server.wire.replies import Push
from tidelog.store.commit.core import Core
from tidelog.store.commit.durability import Promise
from tidelog.store.errors import TidelogError


class Subscriber(Protocol):
    """A session, as far as it subscribes: the names it subscribed to, which `PubSub` keeps up to date."""

    channels: set[bytes]
    patterns: set[bytes]
    shard_channels: set[bytes]

    def tell(self, message: Reply, promise: Promise | None = None) -> None:
        """Push an unsolicited message; with a promise, once that is fulfilled."""


# The subscribers of one name, in order of subscription.
_Listeners = dict[Subscriber, None]


class PubSub:
    """The subscriptions of a server. Create it in the loop's thread.

    channels, shard_channels    name -> sessions     patterns    pattern -> sessions
    """

    def __init__(self, core: Core) -> None:
        self.channels: dict[bytes, _Listeners] = {}
        self.patterns: dict[bytes, _Listeners] = {}
        self.shard_channels: dict[bytes, _Listeners] = {}
        self._matchers: dict[bytes, Callable[[bytes], object]] = {}  # of `patterns`
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._notifications = Notifications()
        self._collected: deque[tuple[int, Event]] = deque()  # with `Core.reloads` at that time
        self._woken = False  # a call of `deliver` is scheduled

    # --- subscriptions

    def subscribe(self, session: Subscriber, channel: bytes) -> None:
        """Subscribe a session to a channel."""
        session.channels.add(channel)
        self.channels.setdefault(channel, {})[session] = None

    def unsubscribe(self, session: Subscriber, channel: bytes) -> None:
        """Undo the subscription, if there is one."""
        session.channels.discard(channel)
        _drop(self.channels, channel, session)

    def psubscribe(self, session: Subscriber, pattern: bytes) -> None:
        """Subscribe a session to every channel that the pattern matches (engine.glob)."""
        session.patterns.add(pattern)
        self.patterns.setdefault(pattern, {})[session] = None
        self._matchers[pattern] = matcher(pattern)

    def punsubscribe(self, session: Subscriber, pattern: bytes) -> None:
        """Undo the subscription, if there is one."""
        session.patterns.discard(pattern)
        _drop(self.patterns, pattern, session)
        if pattern not in self.patterns:
            self._matchers.pop(pattern, None)

    def ssubscribe(self, session: Subscriber, channel: bytes) -> None:
        """Subscribe a session to a shard channel. Without a cluster these differ only in having their own namespace."""
        session.shard_channels.add(channel)
        self.shard_channels.setdefault(channel, {})[session] = None

    def sunsubscribe(self, session: Subscriber, channel: bytes) -> None:
        """Undo the subscription, if there is one."""
        session.shard_channels.discard(channel)
        _drop(self.shard_channels, channel, session)

    def leave(self, session: Subscriber) -> None:
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
        """Send a message to all subscribers and return their number. With a promise, it is sent once that is
        fulfilled.
        """
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
        wanted = [
            event
            for event in events(effect, state, now)
            if event[0] in classes and not event[3].startswith(SERIES)
        ]
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
        except TidelogError:  # the store has ended; other code tells the clients
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


def _drop(registry: dict[bytes, _Listeners], name: bytes, session: Subscriber) -> None:
    listeners = registry.get(name)
    if listeners is not None:
        listeners.pop(session, None)
        if not listeners:
            del registry[name]


def _send(listeners: _Listeners | None, push: Push, promise: Promise | None) -> int:
    if not listeners:
        return 0
    for session in listeners:
        session.tell(push, promise)
    return len(listeners)
