"""QUEUE: the verbs that are asked and answered at once, of jobs/verbs."""

from __future__ import annotations

from functools import partial

from tidelog.engine.api import Context
from tidelog.engine.reply import Map, Reply
from tidelog.jobs.own import TWO
from tidelog.jobs.verbs.verb import Change, Verb
from tidelog.server.commands.queue.given import Given, check_writable, checked, given_of, told
from tidelog.server.once import NEW
from tidelog.server.session import Session
from tidelog.server.table import Handler
from tidelog.server.wire.replies import Double


def handler(verb: type[Verb]) -> Handler[Session]:
    """The handler of a verb."""
    return partial(_ask, verb)


def _ask(verb: type[Verb], session: Session, args: list[bytes]) -> Reply:
    places = 3 + verb.places if verb.of_group else len(args)
    own = {**verb.options, b"ONCE": TWO} if issubclass(verb, Change) else verb.options
    given = given_of(session, args[2], args[places:], own)
    request = verb.parse(args[3:places], given.own)
    if isinstance(request, Change):
        return _changed(session, given, request)
    return _figures(request.reply(told(session, request.decide(given.queue.engine))))


def _changed(session: Session, given: Given, request: Change) -> Reply:
    """The reply of a change, made once."""
    once = given.once(session)
    check_writable(session)
    change = request.decision(given.queue.engine)

    def work(ctx: Context) -> Reply:
        if once is not None and (known := once.before(ctx)) is not NEW:
            return known
        changed = change(ctx)
        if once is not None:
            once.note(ctx, changed)
        return changed

    return checked(session, session.core.run(session.db, work, None, False))


def _figures(reply: Reply) -> Reply:
    """The reply with its floats as doubles."""
    if isinstance(reply, Map):
        return Map(map(_figures, reply))
    return Double(reply) if isinstance(reply, float) else reply
