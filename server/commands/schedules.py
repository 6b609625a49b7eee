"""QUEUE SCHEDULE and QUEUE SCHEDULES: the schedules of a database, for clients in any language.

They put jobs into queues, so a user needs the right to QUEUE PUT for the stream of the schedules and for the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.engine.api import Context
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Map, Reply
from tidelog.jobs import rows
from tidelog.jobs.options import SCHEDULES
from tidelog.jobs.scheduling import Schedule, SchedulesEngine
from tidelog.server.acl.keys import READ
from tidelog.server.once import NEW, Once
from tidelog.server.reserved import queue_refusal
from tidelog.server.session import Session
from tidelog.store.commit.core import Answer

_NOT_TEXT: Final = b"ERR names, cron expressions and time zones must be UTF-8"
_CALLS: Final[dict[bytes, Callable[[SchedulesEngine, str], Answer]]] = {
    b"PAUSE": SchedulesEngine.pause,
    b"RESUME": SchedulesEngine.resume,
    b"REMOVE": SchedulesEngine.remove,
}
_OPTIONS: Final = (b"CRON", b"TZ", b"EVERY", b"CATCHUP", b"PRIORITY", b"ONCE")


class _Served(SchedulesEngine):
    """The schedules of the session's database.

    earlier    the reply of a numbered write that was made before, or NEW
    """

    def __init__(self, session: Session, once: Once | None = None) -> None:
        super().__init__(session.core, session.db)
        self._once = once
        self.earlier: Reply = NEW

    def unit(self, plan: Callable[[Context], list[list[bytes]] | None]) -> Answer:
        once = self._once
        if once is None:
            return super().unit(plan)

        def numbered(ctx: Context) -> list[list[bytes]] | None:
            self.earlier = once.before(ctx)
            if self.earlier is not NEW:
                return None
            words = plan(ctx)
            return [once.words(int(bool(words))), *(words or ())]

        return super().unit(numbered)


def schedule(session: Session, args: list[bytes]) -> Reply:
    """QUEUE SCHEDULE ADD name queue value CRON expression [TZ zone] | EVERY ms [CATCHUP ONE | ALL | NONE]
        [PRIORITY 0 to 9]
    QUEUE SCHEDULE PAUSE | RESUME | REMOVE name [ONCE lane number]

    ADD replies the schedule as pairs. The others reply 0 if there is no schedule of that name. A client may repeat all
    but REMOVE, so only that needs ONCE.
    """
    verb, name = args[2].upper(), args[3]
    refusal = session.core.refusal
    if refusal is not None:
        raise CommandError(refusal)
    if verb == b"ADD" and len(args) >= 6:
        return _add(session, name, args[4], args[5], _options(args[6:]))
    call = _CALLS.get(verb)
    if call is None:
        raise CommandError(SYNTAX)
    _may_put(session, SCHEDULES)
    given = _options(args[4:])
    if set(given) - {b"ONCE"}:
        raise CommandError(SYNTAX)
    lane = given.get(b"ONCE")
    once = Once(session.user, *lane) if lane is not None and verb == b"REMOVE" else None
    served = _Served(session, once)
    there, promise = call(served, _text(name))
    session.rest_on(promise)
    return int(there) if served.earlier is NEW else served.earlier


def _add(
    session: Session, name: bytes, queue: bytes, value: bytes, given: dict[bytes, list[bytes]]
) -> Reply:
    _may_put(session, SCHEDULES)
    _may_put(session, queue)
    text: dict[bytes, Any] = {
        option: _text(given[option][0]) if option in given else None
        for option in (b"CRON", b"TZ", b"CATCHUP")
    }
    every = int64(given[b"EVERY"][0]) / 1000 if b"EVERY" in given else None
    catch_up = (text[b"CATCHUP"] or "one").lower()
    priority = int64(given[b"PRIORITY"][0]) if b"PRIORITY" in given else 0
    found, promise = _Served(session).add(
        *(_text(name), text[b"CRON"], every, _text(queue), value, text[b"TZ"], catch_up, "bytes"),
        priority,
    )
    session.rest_on(promise)
    return _pairs(found)


def schedules(session: Session, args: list[bytes]) -> Reply:
    """QUEUE SCHEDULES: the schedules of the database, each as pairs. A user sees those whose queue it may read."""
    found, promise = _Served(session).list()
    session.rest_on(promise)
    return [_pairs(each) for each in found if session.user.may(each.queue.encode(), READ)]


def _pairs(found: Schedule) -> Reply:
    every = None if found.every is None else round(found.every * 1000)
    return Map(
        (
            *(b"name", found.name.encode(), b"queue", found.queue.encode()),
            *(b"cron", None if found.cron is None else found.cron.encode()),
            *(b"tz", None if found.tz is None else found.tz.encode()),
            *(b"every_ms", every, b"catch_up", found.catch_up.encode(), b"value", found.raw),
            *(b"next_ms", None if found.next_at is None else rows.milliseconds(found.next_at)),
            *(b"paused", int(found.paused), b"ticks", found.ticks, b"priority", found.priority),
        )
    )


def _options(words: list[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    at = 0
    while at < len(words):
        option = words[at].upper()
        size = 2 if option == b"ONCE" else 1
        if option not in _OPTIONS or at + size >= len(words):
            raise CommandError(SYNTAX)
        found[option] = words[at + 1 : at + 1 + size]
        at += 1 + size
    return found


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise CommandError(_NOT_TEXT) from None


def _may_put(session: Session, key: bytes) -> None:
    """Raises CommandError unless the user may put jobs there."""
    put = session.server.commands.table.commands[b"queue|put"]
    refusal = session.server.acl.refusal(session.user, put, [b"QUEUE", b"PUT", key, b""])
    refusal = refusal or queue_refusal(key)
    if refusal is not None:
        raise refusal
