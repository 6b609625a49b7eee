"""Progress: how far the worker of a job has come, as it says itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidelog.jobs import rows
from tidelog.store.errors import DataError, TidelogError

REPORT_SECONDS: Final = 1.0  # least time between two records of one job
TEXT_CHARS: Final = 500
KNOWN_MAX: Final = 1_000  # jobs that are remembered before old ones are forgotten

log = logging.getLogger("tidelog.queue")


@dataclass(frozen=True, slots=True)
class Progress:
    """A worker's report of how far a job has come.

    Attributes:
        fraction: From 0 to 1.
        text: The worker's words.
        at: When it was recorded, in UTC.
    """

    fraction: float
    text: str
    at: datetime

    def as_dict(self) -> dict[str, Any]:
        """The facts as a dict, for JSON."""
        return {"fraction": self.fraction, "text": self.text, "at": self.at.isoformat()}


def checked(fraction: Any, text: Any) -> tuple[float, str]:
    """The arguments of `Job.progress`. Raises DataError."""
    number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if not (number and 0 <= fraction <= 1):
        raise DataError(f"the progress of a job must be a number from 0 to 1, not {fraction!r}")
    if not isinstance(text, str) or len(text) > TEXT_CHARS:
        raise DataError(f"the text of a progress must be a str of at most {TEXT_CHARS} characters")
    return float(fraction), rows.shown(rows.unshown(text))


def packed(fraction: float, text: str, now: int) -> bytes:
    """A progress as it is stored; `now` in unix ms."""
    return json.dumps({"fraction": fraction, "text": text, "at": now}).encode()


def unpacked(raw: object) -> Progress | None:
    """The progress that is stored; None if it is none, since another client wrote it."""
    if not isinstance(raw, bytes):
        return None
    try:
        found = json.loads(raw)
        fraction, text = checked(found["fraction"], found["text"])
        return Progress(fraction, text, rows.moment(int(found["at"])))
    except (ValueError, KeyError, TypeError, RecursionError, DataError):
        return None


class Reports:
    """The progress that jobs of a process report: at most one record a second of each, and the newest in the end."""

    __slots__ = ("newest", "_at")

    def __init__(self) -> None:
        self.newest: dict[Hashable, Callable[[], object]] = {}  # not written yet
        self._at: dict[Hashable, float] = {}  # when the last record was made, monotonic seconds

    def is_due(self, key: Hashable, mono: float, write: Callable[[], object]) -> bool:
        """Whether a delivery may record now what it reports. Otherwise `write` will be called to do it."""
        last = self._at.get(key)
        if last is not None and mono - last < REPORT_SECONDS:
            self.newest[key] = write
            return False
        self.newest.pop(key, None)
        if len(self._at) >= KNOWN_MAX:
            self._at = {k: at for k, at in self._at.items() if mono - at < REPORT_SECONDS}
        self._at[key] = mono
        return True

    def flush(self, mono: float) -> None:
        """Record what is due."""
        for key in list(self.newest):
            if mono - self._at.get(key, mono) >= REPORT_SECONDS:
                self._at[key] = mono
                self.write(key)

    def write(self, key: Hashable) -> None:
        """Record the newest report of a delivery, if there is one. If that fails, the next one does it."""
        write = self.newest.pop(key, None)
        if write is not None:
            try:
                write()
            except TidelogError as error:
                log.debug("a progress could not be recorded: %s", error)
