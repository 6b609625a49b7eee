"""Retries: how a job is tried again after a delivery that failed, and what a handler may raise to decide that itself.

A policy is of a queue, or of one job. That of a job is the field `retry` of its row, as text; the same text is the word
of QUEUE commands:

    backoff=exponential max=8 base=2 cap=600 jitter=no on=builtins.ConnectionError,app.Busy never=builtins.ValueError

Durations are seconds. An option that has its default is left out, apart from `backoff`. Classes are stored by name,
since only the process that works on the job has them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError

BACKOFFS: Final = ("exponential", "linear", "constant")
DELIVERIES_MAX: Final = (1 << 62) - 1
TEXT_MAX: Final = 10_000  # characters
PAUSE_MAX: Final = 3600.0  # seconds; without `cap`, unless the first pause is longer


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a job is tried again after a delivery that failed.

        calls = db.queue("calls", retry=tidelog.RetryPolicy(base=2, cap=600, never=(ValueError,)))
        calls.put({"to": "ann"}, retry=tidelog.RetryPolicy(max=8, backoff="linear"))

    The policy of a job replaces that of its queue as a whole. `on` and `never` are for what leaves the block of a job;
    they do not concern `Job.nack`. The name of each class that an exception inherits from is compared with them.

    Raises:
        DataError: An attribute is invalid.

    Attributes:
        max: After this many deliveries, the first one included, a job is dead; None = `max_deliveries` of the queue.
        backoff: How the pauses grow: "exponential" doubles them, "linear" adds `base` each time, "constant" keeps them.
        base: The first pause, in seconds or as a timedelta; None = `retry_after` of the queue.
        cap: The longest pause before jitter, likewise; None = an hour, or the first pause if that is longer.
        jitter: Whether a pause is multiplied by a random factor between 0.75 and 1.25.
        on: Exception classes; a job whose block raises any other is dead at once. Empty = all are retried. A class may
            be given by name, such as "requests.exceptions.Timeout"; the attribute has the names.
        never: Exception classes, likewise; a job whose block raises one of them is dead at once, also if `on` has it.
    """

    max: int | None = None
    backoff: str = "exponential"
    base: Duration | None = None
    cap: Duration | None = None
    jitter: bool = True
    on: tuple[type[BaseException] | str, ...] = ()
    never: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        if self.max is not None:
            counted("max", self.max)
        if self.backoff not in BACKOFFS:
            raise DataError(f"backoff must be one of {', '.join(BACKOFFS)}, not {self.backoff!r}")
        if not isinstance(self.jitter, bool):
            raise DataError(f"jitter must be True or False, not {self.jitter!r}")
        for name in ("base", "cap"):
            length = getattr(self, name)
            if length is not None:  # in whole milliseconds, as it is stored
                length = max(0.001, round(seconds(name, length), 3))
                object.__setattr__(self, name, length)
        if (
            self.base is not None
            and self.cap is not None
            and _length(self.cap) < _length(self.base)
        ):
            raise DataError(f"cap must be at least base, not {self.cap} with a base of {self.base}")
        for name in ("on", "never"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        if len(str(self)) > TEXT_MAX:
            raise DataError(f"a retry policy must have at most {TEXT_MAX:,} characters as a text")

    def pause(self, deliveries: int, chance: float, first: float) -> float:
        """Seconds before the retry after `deliveries` deliveries.

        Args:
            deliveries: How often the job was delivered, at least 1.
            chance: From 0 to 1: the jitter.
            first: Seconds of the first pause, if the policy has no `base`.
        """
        base = first if self.base is None else _length(self.base)
        cap = max(PAUSE_MAX, base) if self.cap is None else _length(self.cap)
        if self.backoff == "exponential":
            pause = base * 2.0 ** min(deliveries - 1, 64)
        else:
            pause = base * deliveries if self.backoff == "linear" else base
        pause = min(pause, cap)
        return pause * (0.75 + chance / 2) if self.jitter else pause

    def retries(self, error: BaseException) -> bool:
        """Whether a job whose block raised this is tried again."""
        names = set(map(_name, type(error).__mro__))
        return names.isdisjoint(self.never) and not (self.on and names.isdisjoint(self.on))

    def __str__(self) -> str:
        words = [f"backoff={self.backoff}"]
        if self.max is not None:
            words.append(f"max={self.max}")
        for name in ("base", "cap"):
            length = getattr(self, name)
            if length is not None:
                words.append(f"{name}={format(length, '.3f').rstrip('0').rstrip('.')}")
        if not self.jitter:
            words.append("jitter=no")
        for name in ("on", "never"):
            if classes := getattr(self, name):
                words.append(f"{name}={','.join(classes)}")
        return " ".join(words)


def counted(option: str, value: Any) -> int:
    """An option that is a number of things, at least 1. Raises DataError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= DELIVERIES_MAX:
        raise DataError(f"{option} must be an integer of at least 1, not {value!r}")
    return value


def _classes(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


_READ: Final[dict[str, Callable[[str], Any]]] = {
    **{"max": int, "backoff": str, "base": float, "cap": float},
    **{"jitter": {"yes": True, "no": False}.__getitem__, "on": _classes, "never": _classes},
}


_MODULE: Final = type.__dict__["__module__"]
_QUALNAME: Final = type.__dict__["__qualname__"]


def _length(duration: Duration) -> float:
    assert isinstance(duration, float)  # since the policy was made
    return duration


def _name(kind: type) -> str:
    # Not by attributes of the class, which a metaclass may refuse.
    return f"{_MODULE.__get__(kind)}.{_QUALNAME.__get__(kind)}"


def _names(option: str, given: Any) -> tuple[str, ...]:
    """Exception classes by name. Raises DataError."""
    if not isinstance(given, list | tuple | set | frozenset):
        raise DataError(f"{option} must be a tuple of exception classes, not {given!r}")
    return tuple(sorted({_named(option, each) for each in given}))


def _named(option: str, given: Any) -> str:
    kind = given
    if isinstance(given, str) and "." not in given:
        kind = getattr(builtins, given, None)  # so a name that is mistyped is noticed
    name = kind if isinstance(kind, str) else ""
    if isinstance(kind, type) and issubclass(kind, BaseException):
        name = _name(kind)
    if not all(name.split(".")) or set(name) & set(", =") or not name.isprintable():
        raise DataError(f"{option} must name exception classes, not {given!r}")
    return name


PLAIN: Final = RetryPolicy()


def policy_of(given: Any) -> RetryPolicy | None:
    """The argument `retry`: a policy, its text, or None. Raises DataError."""
    if given is None or isinstance(given, RetryPolicy):
        return given
    if not isinstance(given, str):
        raise DataError(f"retry must be a RetryPolicy or its text, not {given!r}")
    found: dict[str, Any] = {}
    for word in given.split():
        name, _, value = word.partition("=")
        if name not in _READ or name in found:
            raise DataError(
                f"retry is a text such as 'max=8 base=2 cap=600 never=ValueError', not {given!r}"
            )
        try:
            found[name] = _READ[name](value)
        except (ValueError, KeyError):
            raise DataError(f"retry has no valid {name} in {given!r}") from None
    return RetryPolicy(**found)


# --- what a handler may raise


class RetryJob(Exception):
    """Raised in the block of a job, or in its handler: this delivery failed, and the job is tried again.

        raise tidelog.RetryJob("the quota is used up", delay=3600)

    It counts as any failed delivery: after the last one the job is dead. It is not logged as an error.

    Args:
        reason: A text that is recorded; empty = that of the exception that is being handled.
        delay: Seconds or a timedelta before the retry; None = the pause of the retry policy.

    Raises:
        DataError: `delay` is invalid.
    """

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        self.reason = str(reason)
        self.delay = None if delay is None else seconds("delay", delay, zero=True)


class GiveUp(Exception):
    """Raised in the block of a job, or in its handler: the job is dead at once.

        raise tidelog.GiveUp("no such customer")

    Args:
        reason: Why; a text. Empty = that of the exception that is being handled.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)
