"""QUEUE: a command becomes a request of jobs/verbs, and its decision the reply."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidelog.engine.api import Context
from tidelog.engine.reply import Map, Reply
from tidelog.jobs.engine import InDatabase
from tidelog.jobs.own import TWO
from tidelog.jobs.verbs.named import Named
from tidelog.jobs.verbs.names import ListQueues
from tidelog.jobs.verbs.schedule import RemoveSchedule
from tidelog.jobs.verbs.schedules import ListSchedules
from tidelog.jobs.verbs.verb import Change, OfDatabase, Verb
from tidelog.server.acl.keys import READ
from tidelog.server.commands.queue.given import (
    Given,
    check_put,
    check_writable,
    checked,
    given_again,
    given_of,
    keep,
    options_in,
    told,
)
from tidelog.server.once import NEW, Once
from tidelog.server.session import Session
from tidelog.server.table import Handler
from tidelog.server.wire.replies import Double
from tidelog.store.commit.core import Answer

# Of each thing that a verb lists, whether the user sees it.
_SEES: Final[dict[type[Verb], Callable[[Session, Any], bool]]] = {
    ListQueues: lambda session, found: session.sees(found[0].encode()),
    ListSchedules: lambda session, found: session.user.may(found.queue.encode(), READ),
}

Work = Callable[[Session, Given, Any], Reply]


def handler(verb: type[Verb], work: Work | None = None) -> Handler[Session]:
    """The handler of a verb.

    work    gives the reply to a request that needs its connection; others are asked and answered at once
    """
    own = {**verb.options, b"ONCE": TWO} if issubclass(verb, Change) else verb.options
    answer = work or _ask
    # Clients repeat what they say of jobs, with the same options.
    find = partial(given_again, verb.name) if issubclass(verb, Named) else given_of

    def handle(session: Session, args: list[bytes]) -> Reply:
        words = args[3:]
        end = verb.placed(words)
        given = find(session, args[2], words[end:], own)
        return answer(session, given, verb.parse(words[:end], given.own))

    return handle


def repeated(verb: type[Verb], work: Work) -> Handler[Session]:
    """The handler of a verb whose clients repeat it with the same words: its requests are kept."""
    ask = handler(verb, lambda session, given, request: (given, request))

    def handle(session: Session, args: list[bytes]) -> Reply:
        kept = session.server.desk.requests
        key = (session.db, *args)
        known = kept.get(key)
        if known is None:
            known = ask(session, args)
            keep(kept, key, known, args)
        return work(session, *known)

    return handle


def _ask(session: Session, given: Given, request: Verb) -> Reply:
    if isinstance(request, Change):
        check_writable(session)
        return changed(session, given, request)
    return _figures(request.reply(told(session, request.decide(given.queue.engine))))


def changed(session: Session, given: Given, request: Change) -> Reply:
    """The reply of a change, made once."""
    once = given.once(session)
    change = request.decision(given.queue.engine)

    def work(ctx: Context) -> Reply:
        if once is not None and (known := once.before(ctx)) is not NEW:
            return known
        result = change(ctx)
        if once is not None:
            once.note(ctx, result)
        return result

    return checked(session, session.core.run(session.db, work, None, False))


def of_database(verb: type[OfDatabase]) -> Handler[Session]:
    """The handler of a verb of a database."""
    return partial(_ask_database, verb)


def _ask_database(verb: type[OfDatabase], session: Session, args: list[bytes]) -> Reply:
    words = args[2:]
    if "write" in verb.facts.flags:
        check_writable(session)
    kind = verb.chosen(words)
    for key in kind.puts(words):
        check_put(session, [key, b""])
    own, _ = options_in(words[kind.places :], kind.options)
    request, engine = kind.parse(words[: kind.places], own), InDatabase(session.core, session.db)
    lane = own.get(b"ONCE")
    if lane is not None and isinstance(request, RemoveSchedule):
        return told(session, _removed(engine, request, Once(session.user, *lane)))
    result, sees = told(session, request.decide(engine)), _SEES.get(verb)
    seen = result if sees is None else [each for each in result if sees(session, each)]
    return request.reply(seen)


def _removed(engine: InDatabase, request: RemoveSchedule, once: Once) -> Answer:
    """The reply of a removal, made once."""
    reply: Reply = None

    def plan(ctx: Context) -> list[list[bytes]] | None:
        nonlocal reply
        reply = once.before(ctx)
        if reply is not NEW:
            return None
        words = request.plan(engine, ctx)
        reply = int(words is not None)
        return [once.words(reply), *(words or ())]

    _, promise = engine.unit(plan)
    return reply, promise


def _figures(reply: Reply) -> Reply:
    """The reply with its floats as doubles."""
    if isinstance(reply, Map):
        return Map(map(_figures, reply))
    return Double(reply) if isinstance(reply, float) else reply
