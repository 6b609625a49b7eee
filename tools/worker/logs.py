"""The log lines of `tidelog worker` on standard error: all messages of the process, as text or JSON.

2026-11-22T01:47:43.120Z INFO queue mails: host-17-1 takes jobs with 4 threads
{"time": "...", "level": "info", "message": "...", "logger": "tidelog.worker", "queue": "mails", "worker": "..."}
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

from tidelog.server.monitoring.logs import JsonLines, TextLines

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
# The fields of the records of `tidelog.worker` and `tidelog.queue`, as far as they have them.
FIELDS: Final = ("queue", "worker", "job", "seconds", "done", "given_back", "attempts", "reason")


class WorkerLines(JsonLines):
    """JSON lines with the fields of a worker."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields of a record."""
        more = {
            name: value for name in FIELDS if (value := getattr(record, name, None)) is not None
        }
        return {**super().fields(record), **more}


def begin(level: str, form: str) -> None:
    """Send the messages of the whole process, the user's too, to standard error. The process is ours."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(WorkerLines() if form == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=LEVELS[level], force=True)
