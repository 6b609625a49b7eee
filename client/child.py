"""Child: one process of `SharedQueue.run(processes=)`, started as `python -m tidelog.client.child`.

client/working.py says what the parent sends it, and what it answers.
"""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import spawn

from tidelog.api.queue.running.plan import Recycled, is_coroutine, log
from tidelog.client import working
from tidelog.client.aio import AsyncSharedStore
from tidelog.client.link import Link
from tidelog.client.processes import AGAIN, end_with_parent
from tidelog.client.store import SharedStore
from tidelog.client.working import CANNOT_WORK, LENGTH, MESSAGE_BYTES_MAX, Work
from tidelog.jobs.time_limits import WorkersHang
from tidelog.store.errors import CannotOpen, DataError, StoreLocked


def main() -> int:
    """Do the work. Returns the exit code."""
    given = io.BytesIO(_read(LENGTH.unpack(_read(LENGTH.size))[0]))
    end_with_parent()
    try:
        prepared = pickle.load(given)
        working.preparing = True
        spawn.prepare(prepared)
        work: Work | Callable[[], int] = pickle.load(given)
    except Exception as error:
        # The message has no descriptor yet, so the traceback alone says it.
        traceback.print_exception(error)
        return CANNOT_WORK
    finally:
        working.preparing = False
    try:
        left = _work(work) if isinstance(work, Work) else work()
        answer, code = str(int(left)), AGAIN if isinstance(left, Recycled) else 0
    except WorkersHang as error:
        log.error("%s; another process takes the place of this one", error)
        answer, code = "0", AGAIN
    except StoreLocked:
        raise  # that process may end; the parent starts another child
    except (DataError, CannotOpen) as error:
        line = " ".join(f"!{type(error).__name__}: {error}".split())
        answer, code = line[:MESSAGE_BYTES_MAX], CANNOT_WORK
    with suppress(BrokenPipeError):  # the parent was killed
        os.write(prepared["answers"], f"{answer}\n".encode())
    return code


def _work(work: Work) -> int:
    link = Link(work.addresses, work.timeout, work.options, work.start)
    with SharedStore(link, decode=False, db=work.db, opened_here=True) as store:
        if is_coroutine(work.handler):
            queue = AsyncSharedStore(store).queue(**work.queue)
            run = {name: value for name, value in work.run.items() if name != "isolate"}
            return asyncio.run(queue.arun(work.handler, **run))
        return store.queue(**work.queue).run(work.handler, **work.run)


def _read(size: int) -> bytes:
    """The next bytes of the pipe from the parent."""
    found = b""
    while len(found) < size:
        piece = os.read(0, size - len(found))
        if not piece:
            sys.exit(CANNOT_WORK)  # the parent was killed
        found += piece
    return found


if __name__ == "__main__":
    sys.exit(main())
