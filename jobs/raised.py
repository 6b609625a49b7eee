"""Raised: what becomes of a job whose block an exception has left. Its worker decides that, by the job's policy."""

from __future__ import annotations

from tidelog.engine.api import EntryRow
from tidelog.jobs import rows
from tidelog.jobs.options import Options
from tidelog.jobs.retries import GiveUp, RetryJob
from tidelog.jobs.verbs.fail import Fail
from tidelog.jobs.verbs.retry import Retry


def ending_of(error: BaseException, row: EntryRow, options: Options) -> Retry | Fail:
    """The request by which the worker of a job ends its delivery."""
    if isinstance(error, GiveUp):
        return Fail(*_asked(error))
    if isinstance(error, RetryJob):
        return Retry(*_asked(error), error.delay)
    policy = rows.retry_of(row) or options.retry
    if policy is not None and not policy.retries(error):
        return Fail.of(error)
    return Retry.of(error, None)


def _asked(error: RetryJob | GiveUp) -> tuple[str, str]:
    """The evidence of what a handler asked for: its reason, and the exception that it was handling."""
    cause = error.__cause__ or error.__context__
    if cause is None:
        return rows.evidence(error.reason or type(error).__name__)
    text, trace = rows.evidence(cause)
    return rows.evidence_of(error.reason or text, trace)
