"""Log lines of `tidelog serve`, as text or JSON. An embedding program configures logging itself.

    2026-11-22T01:47:43.120Z INFO listening on 127.0.0.1:6379 (tcp)
    {"time": "2026-11-22T01:47:43.120Z", "level": "info", "message": "listening on ...", "logger": "tidelog.server"}

Redis's levels: debug, verbose, notice (INFO in a line) and warning. asyncio's messages below WARNING are dropped.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any, Final

from tidelog.api.closing import Closing
from tidelog.disk.text_log import open_log_file
from tidelog.server.config.config import Config, ConfigError

VERBOSE: Final = 15
LEVELS: Final = {
    "debug": logging.DEBUG,
    "verbose": VERBOSE,
    "notice": logging.INFO,
    "warning": logging.WARNING,
}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Logs(Closing):
    """Sends tidelog's log messages of `loglevel` and above to standard error or `logfile`, until closed.

    A file that was moved away (logrotate) is created again. Raises ConfigError if it cannot be opened.
    """

    def __init__(self, config: Config) -> None:
        self._handler: logging.Handler = logging.StreamHandler(sys.stderr)
        path: str = config["logfile"]
        if path:
            try:
                self._handler = _LogFile(path)
            except OSError as error:
                raise ConfigError(f"logfile {path}: {error.strerror or error}") from error
        self._handler.setFormatter(JsonLines() if config["log-format"] == "json" else TextLines())
        self._own = logging.getLogger("tidelog")
        self._loop = logging.getLogger("asyncio")
        self._before = self._own.level, self._own.propagate, self._loop.propagate
        self._own.propagate = self._loop.propagate = False
        self._handler.addFilter(_without_chatter)
        for logger in (self._own, self._loop):
            logger.addHandler(self._handler)
        self.set_level(config["loglevel"])
        config.on("loglevel", self.set_level)

    def set_level(self, level: str) -> None:
        """Set one of Redis's levels."""
        self._own.setLevel(LEVELS[level])

    def close(self) -> None:
        """Restore the previous logging configuration."""
        for logger in (self._own, self._loop):
            logger.removeHandler(self._handler)
        level, self._own.propagate, self._loop.propagate = self._before
        self._own.setLevel(level)
        self._handler.close()


class _LogFile(WatchedFileHandler):
    """A log file that only its owner may read, because it names clients, users and keys."""

    def _open(self) -> Any:
        return open_log_file(self.baseFilename)


def _without_chatter(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or not record.name.startswith("asyncio")


class TextLines(logging.Formatter):
    """Time in UTC, level, message. Control characters are escaped, so that clients cannot forge log lines."""

    def format(self, record: logging.LogRecord) -> str:
        message = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], record.getMessage())
        line = f"{_time(record)} {_level(record)} {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, message, logger; and `error` with the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record), default=str)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields of a record."""
        found: dict[str, Any] = {
            "time": _time(record),
            "level": _level(record).lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return found


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _level(record: logging.LogRecord) -> str:
    return "VERBOSE" if record.levelno == VERBOSE else record.levelname
