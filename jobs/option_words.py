"""The options of a queue as words of a QUEUE command, both ways. They are not stored, so each command may name them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.jobs.codecs import Codec
from tidelog.jobs.options import Options, make_options
from tidelog.jobs.own import ms_word
from tidelog.jobs.verbs.verb import RETRY
from tidelog.store.errors import DataError

# Those that are numbers: the attribute of Options, and the argument of `make_options`.
_NUMBERS: Final = {
    b"MAXDELIVERIES": ("max_deliveries", "max_deliveries"),
    b"MAXDEPTH": ("max_depth", "max_depth"),
    b"MAXFAILURES": ("max_failures", "max_failures"),
    b"CONCURRENCY": ("concurrency", "concurrency"),
    b"CONCURRENCYPERKEY": ("concurrency_per_key", "concurrency_per_key"),
    b"KEEP": ("keep_count", "keep"),
}
_TEXTS: Final = {b"RATE": "rate", b"RETRYPOLICY": "retry"}
_TIMES: Final = {b"RETRYAFTER": "retry_after", b"LEASE": "lease"}
OPTIONS: Final = frozenset((*_NUMBERS, *_TEXTS, *_TIMES, b"GROUP", b"KEEPMS", b"CODEC"))
_DEFAULTS: Final = make_options("any")


def option_words(options: Options) -> list[bytes]:
    """The options as words; the defaults are left out, which the server knows."""
    words: list[bytes] = []
    if options.group != _DEFAULTS.group:
        words += (b"GROUP", options.group_key)
    if options.retry_after != _DEFAULTS.retry_after:
        words += (b"RETRYAFTER", ms_word(options.retry_after))
    if options.lease != options.retry_after:
        words += (b"LEASE", ms_word(options.lease))
    for word, (name, _) in _NUMBERS.items():
        value = getattr(options, name)
        if value != getattr(_DEFAULTS, name):
            words += (word, b"%d" % value)
    for word, name in _TEXTS.items():
        text = getattr(options, name)
        if text is not None:
            words += (word, str(text).encode())
    if options.keep_seconds:
        words += (b"KEEPMS", b"%d" % round(options.keep_seconds * 1000))
    if options.codec.name != "bytes":  # what commands take and give unless they are told
        words += (b"CODEC", options.codec.name.encode())
    return words


def needs_of(options: Options) -> bytes | None:
    """The capability without which a server does not know the words of the options; None: version 0.1 knows them."""
    return None if options.retry is None and options.lease == options.retry_after else RETRY


def options_of(name: bytes, words: tuple[bytes, ...]) -> Options:
    """The options of a queue: pairs of an option's name, in upper case, and its value. Raises CommandError."""
    given: dict[str, Any] = {}
    codec = "bytes"
    group = b"workers"
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option == b"GROUP":
            group = value
        elif option == b"CODEC":
            codec = value.decode("utf-8", "backslashreplace")
        elif option in _TEXTS:
            given[_TEXTS[option]] = value.decode("utf-8", "backslashreplace")
        elif option in _TIMES:
            given[_TIMES[option]] = int64(value) / 1000
        elif option == b"KEEPMS":
            try:
                given["keep"] = timedelta(milliseconds=int64(value))
            except OverflowError:
                raise CommandError(b"ERR KEEPMS is out of range") from None
        else:
            given[_NUMBERS[option][1]] = int64(value)
    try:
        return make_options(name.decode(), group.decode(), codec=_same(codec), **given)
    except UnicodeDecodeError:
        raise CommandError(b"ERR the names of a queue and of a group must be UTF-8") from None
    except DataError as error:
        raise CommandError(b"ERR " + str(error).encode(errors="surrogateescape")) from None


def _same(name: str) -> Codec:
    """Values are bytes here. The name of the client's codec is recorded in dead jobs."""
    return Codec(name, bytes, bytes)
