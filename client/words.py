"""Words: the arguments of the methods of a shared queue as words of QUEUE commands."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from tidelog.client.wire import ms_word
from tidelog.engine import ids
from tidelog.jobs.dedup import WINDOW
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.options import Options, job_number, make_options, positive
from tidelog.jobs.work.later import when
from tidelog.store.durations import Duration

DEFAULTS: Final = make_options("any")


def count_word(name: str, value: Any) -> bytes:
    """A number of jobs; `name` is that of the argument. Raises DataError if it is not positive."""
    positive(name, value)
    return b"%d" % value


def time_words(delay: Duration | None, at: datetime | None) -> list[bytes]:
    """The options of QUEUE MOVE. Raises DataError."""
    return JobOptions(None, WINDOW, (), *when(delay, at)).words()


def job_word(job_id: Any) -> bytes:
    """The ID of a job. Raises DataError."""
    return ids.text(job_number(job_id))


def option_words(options: Options) -> list[bytes]:
    """The options of a queue as words of a command; the defaults are left out, which the server knows."""
    words: list[bytes] = []
    if options.group != DEFAULTS.group:
        words += (b"GROUP", options.group_key)
    if options.retry_after != DEFAULTS.retry_after:
        words += (b"RETRYAFTER", ms_word(options.retry_after))
    if options.max_deliveries != DEFAULTS.max_deliveries:
        words += (b"MAXDELIVERIES", b"%d" % options.max_deliveries)
    if options.max_failures != DEFAULTS.max_failures:
        words += (b"MAXFAILURES", b"%d" % options.max_failures)
    if options.max_depth is not None:
        words += (b"MAXDEPTH", b"%d" % options.max_depth)
    if options.concurrency is not None:
        words += (b"CONCURRENCY", b"%d" % options.concurrency)
    if options.concurrency_per_key is not None:
        words += (b"CONCURRENCYPERKEY", b"%d" % options.concurrency_per_key)
    if options.rate is not None:
        words += (b"RATE", str(options.rate).encode())
    if options.keep_count:
        words += (b"KEEP", b"%d" % options.keep_count)
    if options.keep_seconds:
        words += (b"KEEPMS", b"%d" % round(options.keep_seconds * 1000))
    if options.codec.name != "bytes":  # what commands take and give unless they are told
        words += (b"CODEC", options.codec.name.encode())
    return words
