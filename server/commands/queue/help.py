"""QUEUE HELP."""

from __future__ import annotations

from typing import Final

from tidelog.engine.reply import Reply, Status
from tidelog.server.session import Session


def help_(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _HELP]


_HELP: Final = (
    b"QUEUE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"PUT <name> <value> [DEDUP <id> [MODE WINDOW | UNTIL-DONE | REPLACE]] [HEADERS <count> <name> <text> ...]",
    b"    [DELAY <ms> | AT <unix-ms>] [TTL <ms>] [PRIORITY <0 to 9>] [KEY <text>] [BLOCK <ms>]",
    b"    Put a job; the reply is its ID, or that of the job that has the dedup ID.",
    b"PUTMANY <name> <count> <value> [<value> ...] [DELAY <ms> | AT <unix-ms>] [TTL <ms>]",
    b"    [PRIORITY <0 to 9>] [KEY <text>] [BLOCK <ms>]",
    b"    Put several jobs as one unit; the reply is their number.",
    b"CANCEL <name> <id>",
    b"    Delete a delayed job.",
    b"MOVE <name> <id> DELAY <ms> | AT <unix-ms>",
    b"    Make a delayed job due at another time.",
    b"FORGET <name> <id>",
    b"    Free a dedup ID; the reply is 0 if it was free.",
    b"SCHEDULE ADD <name> <queue> <value> CRON <expression> [TZ <zone>] | EVERY <ms> [CATCHUP ONE | ALL | NONE]",
    b"    Put a job into a queue again and again.",
    b"SCHEDULE PAUSE | RESUME | REMOVE <name>",
    b"    Change a schedule; the reply is 0 if there is none.",
    b"SCHEDULES",
    b"    The schedules of the database.",
    b"TAKE <name> <worker> [COUNT <n>] [BLOCK <ms>] [HEARTBEAT <ms>] [LIMIT <ms>] [HISTORY]",
    b"    [CONFIRM <token>]",
    b"    Get jobs, each as ID, number of deliveries, and fields.",
    b"DONE <name> <worker> <id> <deliveries> [<id> <deliveries> ...] [RESULT <value> [RESULTTTL <ms>]]",
    b"    The jobs are done. A result is for one job.",
    b"RESULT <name> <id> [BLOCK <ms>]",
    b"    The result that the worker of a job gave.",
    b"DONEAND <name> <worker> <id> <deliveries> <count> [<words> <name> <value> ...] ...",
    b"    The job is done, and others are put in the same unit.",
    b"RETRY <name> <worker> <id> <deliveries> <error> [DELAY <ms>] [TRACE <text>]",
    b"    The delivery failed; the job is tried again later.",
    b"FAIL <name> <worker> <id> <deliveries> <error> [TRACE <text>]",
    b"    Give the job up; it becomes a dead job.",
    b"RELEASE <name> <worker> <id> <deliveries>",
    b"    Give the job back as if it had not been delivered.",
    b"EXTEND <name> <worker> <id> <deliveries> <ms>",
    b"    Keep the job for so long, even if the connection ends.",
    b"CONFIRM <name> <worker> <id> <deliveries>",
    b"    A handler begins with the jobs of a TAKE that had CONFIRM; until then they go back if the connection ends.",
    b"UNBLOCK <name> <token>",
    b"    End the TAKE of another connection that waits with this token.",
    b"RENEW <name> <worker> <id> <deliveries> [<id> <deliveries> ...] [HEARTBEAT <ms>]",
    b"    The worker lives; the reply lists the jobs that it still holds.",
    b"DROP <name> <worker> <id> <deliveries> [<id> <deliveries> ...]",
    b"    The worker dropped the jobs; they come back when their lease is over.",
    b"SUBSCRIBE <name>",
    b"    Create the group, so that it gets every job from now on.",
    b"LEN <name>",
    b"    The number of jobs that are not done.",
    b"STATS <name>",
    b"    Figures about the queue.",
    b"PEEK <name> [COUNT <n>] [SCHEDULED]",
    b"    The next jobs, or the delayed jobs that are not due yet, with their times; they are not delivered.",
    b"FAILURES <name> [JOB <id>] [COUNT <n>]",
    b"    Recorded failures, newest first.",
    b"DEAD <name> COUNT | LIST [<start> [<count>]] | REDRIVE <id> [<id> ...] | PURGE <id> [<id> ...]",
    b"    Dead jobs.",
    b"PURGE <name>",
    b"    Delete jobs that are not in flight; the reply tells whether there are more.",
    b"LIST",
    b"    Names and groups of all queues.",
    b"Every subcommand but LIST, DEAD, SCHEDULE and SCHEDULES takes the queue's options at its end: GROUP,",
    b"RETRYAFTER (ms), MAXDELIVERIES, MAXDEPTH, MAXFAILURES, CONCURRENCY, CONCURRENCYPERKEY, RATE (<jobs>/s, m, h or",
    b"d), KEEP (jobs), KEEPMS, CODEC (its name is kept with dead jobs).",
    b"HELP",
    b"    Print this help.",
)
