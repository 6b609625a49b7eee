"""The handlers of QUEUE: each verb of jobs/verbs with what serves it."""

from __future__ import annotations

from typing import Final

from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.found import VERBS
from tidelog.jobs.verbs.verb import Question, Verb
from tidelog.server.commands.queue import asking, help, putting, results, settling, taking
from tidelog.server.session import Session
from tidelog.server.table import Handler

_OWN: Final[dict[bytes, Handler[Session]]] = {
    b"PUT": putting.put,
    b"PUTMANY": putting.putmany,
    b"TAKE": taking.take,
    b"DONE": settling.done,
    b"DONEAND": settling.doneand,
    b"CONFIRM": settling.confirm,
    b"UNBLOCK": settling.unblock,
    b"RENEW": settling.renew,
    b"DROP": settling.drop,
    b"HELP": help.help_,
}


def _handler(verb: type[Verb]) -> Handler[Session]:
    if verb.name in _OWN:
        return _OWN[verb.name]
    if issubclass(verb, Question):
        return results.handler(verb)
    return settling.handler(verb) if issubclass(verb, Ending) else asking.handler(verb)


QUEUE: Final = {verb: _handler(verb) for verb in VERBS}
