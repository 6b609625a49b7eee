"""QUEUE: a command becomes a request of jobs/verbs, and its decision the reply."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.engine.api import Context
from tidelog.engine.reply import Map, Reply
from tidelog.jobs.engine import InDatabase
from tidelog.jobs.own import TWO
from tidelog.jobs.verbs.named import Named
from tidelog.jobs.verbs.verb import Change, OfDatabase, Safe, Verb
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
from tidelog.server.once import Once
from tidelog.server.session import Session
from tidelog.server.table import Handler
from tidelog.server.wire.replies import Double

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


def changed(
    session: Session,
    given: Given,
    request: Change,
    change: Callable[[Context], Reply] | None = None,
) -> Reply:
    """The reply of a change, made once. `change`: its decision, if the caller has made that."""
    once = given.once(session)
    change = change or request.decision(given.queue.engine)
    work = change if once is None else partial(once.decided, change)
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
    series = own.get(b"ONCE")
    if series is None or request.safe is not Safe.ONCE:
        result = told(session, request.decide(engine))
    else:
        plan = partial(Once(session.user, *series).planned, request.plan(engine))
        result = told(session, engine.planned(plan))
    if isinstance(result, list):
        needed = READ if verb.reads else 0
        result = [each for each in result if session.sees(verb.queue_of(each).encode(), needed)]
    return request.reply(result)


def _figures(reply: Reply) -> Reply:
    """The reply with its floats as doubles."""
    if isinstance(reply, Map):
        return Map(map(_figures, reply))
    return Double(reply) if isinstance(reply, float) else reply
