"""TIDELOG CAPABILITIES: what a client may use here that servers of earlier versions do not have."""

from __future__ import annotations

from typing import Final

from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.reply import Reply
from tidelog.server.session import Session

# cancel     QUEUE CANCEL of jobs that are not delayed, and with ONLY; QUEUE CANCELLED
# confirm    QUEUE TAKE with CONFIRM, QUEUE CONFIRM and UNBLOCK
# dedup      QUEUE PUT with DEDUP and MODE, QUEUE FORGET
# find       QUEUE FIND
# handover   TIDELOG HANDOVER
# hangs      QUEUE HANGS
# job        QUEUE JOB
# limit      QUEUE PUT and PUTMANY with TIMELIMIT
# pause      QUEUE PAUSE, RESUME and PAUSED
# progress   QUEUE PROGRESS
# release    QUEUE RELEASE with ONCE
# retry      QUEUE PUT and PUTMANY with RETRY; the options LEASE and RETRYPOLICY of queues
# workers    QUEUE WORKERS
# fsync:...  the fsync policy at this time
CAPABILITIES: Final = (
    *(b"cancel", b"confirm", b"dedup", b"find", b"handover", b"hangs", b"job", b"limit"),
    *(b"pause", b"progress", b"release", b"remove", b"retry", b"workers"),
)
PROCESS_BYTES_MAX: Final = 64


def capabilities(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG CAPABILITIES [process]: their names. A server of version 0.1 does not know the command, and has none.

    process    a name of the client's process, which no other one has: jobs that all of its connections hold are lost
               together (jobs/work/alone.py)
    """
    if len(args) > 3 or len(args[-1]) > PROCESS_BYTES_MAX:
        raise CommandError(SYNTAX)
    if len(args) == 3:
        session.process = args[2]
    policy = session.server.config["appendfsync"]
    return [*CAPABILITIES, b"fsync:" + policy.encode()]
