"""The verbs of a queue, a file for each: request, decision, words and reply, and what the tables of commands tell.

verb.py says what a verb is, own.py reads its options. VERBS has all, in the order of QUEUE HELP. Those of ASKED are
asked and answered at once; an Ending is about one delivery. The others wait, or belong to a connection that takes jobs
(server/commands/queue).
"""

from __future__ import annotations

from typing import Final

from tidelog.jobs.verbs.cancel import Cancel
from tidelog.jobs.verbs.confirm import Confirm
from tidelog.jobs.verbs.dead import Dead
from tidelog.jobs.verbs.done import Done
from tidelog.jobs.verbs.done_and import DoneAnd
from tidelog.jobs.verbs.drop import Drop
from tidelog.jobs.verbs.extend import Extend
from tidelog.jobs.verbs.fail import Fail
from tidelog.jobs.verbs.failures import Failures
from tidelog.jobs.verbs.forget import Forget
from tidelog.jobs.verbs.help_ import Help
from tidelog.jobs.verbs.length import Length
from tidelog.jobs.verbs.move import Move
from tidelog.jobs.verbs.names import ListQueues
from tidelog.jobs.verbs.peek import Peek
from tidelog.jobs.verbs.purge import Purge
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.put_many import PutMany
from tidelog.jobs.verbs.release import Release
from tidelog.jobs.verbs.renew import Renew
from tidelog.jobs.verbs.result import AskResult
from tidelog.jobs.verbs.retry import Retry
from tidelog.jobs.verbs.schedule import ChangeSchedule
from tidelog.jobs.verbs.schedules import ListSchedules
from tidelog.jobs.verbs.stats import AskStats
from tidelog.jobs.verbs.subscribe import Subscribe
from tidelog.jobs.verbs.take import Take
from tidelog.jobs.verbs.unblock import Unblock
from tidelog.jobs.verbs.verb import Verb

VERBS: Final[tuple[type[Verb], ...]] = (
    *(PutJob, PutMany, Cancel, Move, Forget),
    *(ChangeSchedule, ListSchedules),
    *(Take, Done, AskResult, DoneAnd, Retry, Fail, Release, Extend, Confirm, Unblock, Renew, Drop),
    *(Subscribe, Length, AskStats, Peek, Failures, Dead, Purge),
    *(ListQueues, Help),
)
ASKED: Final = frozenset(
    (Cancel, Move, Forget, Subscribe, Length, AskStats, Peek, Failures, Dead, Purge)
)
