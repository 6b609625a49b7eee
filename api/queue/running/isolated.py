"""Isolated: a process that works for a run with `isolate="process"`, started as
`python -m tidelog.api.queue.running.isolated DESCRIPTOR`.

pipe.py says what the run sends it, and what it answers. It has no store, and ends with the run: at the end of its pipe
when it is idle; at once, with all that it has started, when the run's process is gone, which the end of its standard
input tells. There the run also says that a job was cancelled.
"""

from __future__ import annotations

import logging
import pickle
import socket
import sys
import threading
import traceback
from contextlib import suppress
from multiprocessing import spawn
from typing import Any

from tidelog.api.queue.running import preparing
from tidelog.api.queue.running.pipe import DONE, FAILED, LOG, NO_RESULT, OVER, READY, Pipe, Start
from tidelog.api.queue.running.through import IsolatedJob, Parent, cancels, end_at_once
from tidelog.jobs import rows
from tidelog.jobs.options import Options, make_options
from tidelog.store import opening
from tidelog.store.errors import EncodeError, TidelogError


class ToParent(logging.Handler):
    """Sends log records to the run."""

    def __init__(self, parent: Parent) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        fields = record.__dict__ | {"msg": record.getMessage(), "args": None}
        if record.exc_info and not record.exc_text:
            fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
        fields["exc_info"] = None
        try:
            pickle.dumps(fields)
        except Exception:  # the program gave it more fields
            known = logging.makeLogRecord({}).__dict__
            fields = {name: value for name, value in fields.items() if name in known}
        self._parent.tell(LOG, fields)


def main() -> int:
    """Work. Returns the exit code."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    pipe = Pipe(sock)
    threading.Thread(target=_heed_parent, name="tidelog-parent", daemon=True).start()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a process may be killed
    parent = Parent(pipe)
    prepared, given = pipe.receive(), pipe.receive()
    preparing.isolated, opening.of_parent = True, prepared.pop("store")
    levels: dict[str, int] = prepared.pop("levels")
    logging.root.addHandler(ToParent(parent))
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        spawn.prepare(prepared)
        start: Start = pickle.loads(given)
        queues = [make_options(**queue) for queue in start.queues]
    except BaseException as error:
        if not isinstance(error, TidelogError):
            traceback.print_exception(error)
        parent.tell(FAILED, type(error).__name__, str(error))
        return 1
    parent.tell(READY)
    while (task := parent.task()) is not None:
        _work(parent, start, queues[task.queue], task)
        sys.stdout.flush()
    return 0


def _work(parent: Parent, start: Start, options: Options, task: Any) -> None:
    job = IsolatedJob(parent, options, task)
    try:
        result = start.handler(job)
    except BaseException as error:
        try:
            job.failed(error)
        except TidelogError:
            pass  # the run has it, too
        parent.tell(OVER)
        return
    encoded = None
    if start.results and job.state == "open":
        try:
            encoded = rows.encode_value(options, result, "a result")
        except EncodeError as error:
            parent.tell(NO_RESULT, str(error))
            return
    parent.tell(DONE, encoded)


def _heed_parent() -> None:
    line = Pipe(socket.socket(fileno=0))  # the run's process holds it open
    with suppress(EOFError, ConnectionError):
        while True:
            # A thread for each: what the program has called on a cancel may take long.
            told = threading.Thread(target=cancels.announce, args=(line.receive(),), daemon=True)
            with suppress(RuntimeError):
                told.start()
    end_at_once()


if __name__ == "__main__":
    sys.exit(main())
