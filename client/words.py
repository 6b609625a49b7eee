"""Words: the arguments of the methods of a shared queue as words of QUEUE commands."""

from __future__ import annotations

from typing import Final

from tidelog.jobs.options import Options, make_options
from tidelog.jobs.own import ms_word

DEFAULTS: Final = make_options("any")


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
