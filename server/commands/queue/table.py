"""The handlers of QUEUE: each verb of jobs/verbs with what serves it."""

from __future__ import annotations

from typing import Final

from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.found import VERBS
from tidelog.jobs.verbs.take import Take
from tidelog.jobs.verbs.verb import OfDatabase, Question, Verb
from tidelog.server.commands.queue import asking, help, putting, results, settling, taking
from tidelog.server.session import Session
from tidelog.server.table import Handler

_OWN: Final[dict[bytes, Handler[Session]]] = {
    b"PUT": putting.put,
    b"TAKE": asking.repeated(Take, taking.take),
    b"DONEAND": settling.doneand,
    b"RELEASE": settling.release,
    b"HELP": help.help_,
}
# Those whose requests need a connection.
_SERVED: Final[dict[bytes, asking.Work]] = {
    b"PUTMANY": putting.putmany,
    b"CANCEL": settling.cancel,
    b"DONE": settling.done,
    b"CONFIRM": settling.confirm,
    b"UNBLOCK": settling.unblock,
    b"RENEW": settling.renew,
    b"DROP": settling.drop,
}


def _handler(verb: type[Verb]) -> Handler[Session]:
    if verb.name in _OWN:
        return _OWN[verb.name]
    if issubclass(verb, Ending):
        return settling.handler(verb)
    if issubclass(verb, OfDatabase):
        return asking.of_database(verb)
    work = results.answer if issubclass(verb, Question) else _SERVED.get(verb.name)
    return asking.handler(verb, work)


QUEUE: Final = {verb: _handler(verb) for verb in VERBS}
