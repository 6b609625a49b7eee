"""A store with queues in every state, made through the API under a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import tidelog
from tidelog.testing import Clock

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # 1,700,000,000 s
SEND = "def send(to):\n    raise TimeoutError(f'no answer from {to}')\nsend('mx.example.org')\n"


def raised() -> Exception:
    """An exception whose traceback is the same wherever the test runs."""
    try:
        exec(compile(SEND, "mailer.py", "exec"), {})
    except TimeoutError as error:
        assert error.__traceback__ is not None
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError


@contextmanager
def mails(root: Path, clock: Clock) -> Iterator[tidelog.Store]:
    """The store whose outputs are kept in `expected/`, open.

    mails     one job in flight, one paused, three waiting, three dead
    orders    one job waiting, for a group of another name
    """
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue = db.queue("mails", max_deliveries=2)
        queue.put({"to": "anna@example.org", "n": 1}, headers={"trace": "4bf92f", "tenant": "a b"})
        clock.advance(1)
        job = queue.get("worker-1", block=0)
        assert job is not None
        job.nack(raised())
        clock.advance(60)
        job = queue.get("worker-2", block=0)
        assert job is not None and job.deliveries == 2
        job.nack(raised())
        queue.put({"to": "nobody"})
        job = queue.get("worker-1", block=0)
        assert job is not None
        job.fail("no such mailbox: nobody")
        clock.advance(3600)
        own = db.queue("mails", codec=(bytes, bytes))
        own.put(b"\x80\x00{")
        job = own.get("worker-1", block=0)
        assert job is not None
        job.fail("what is this?")
        clock.advance(1)
        queue.put({"to": "ben@example.org"})
        job = queue.get("worker-3", block=0)
        assert job is not None
        job.nack("try again", delay=86_400)
        clock.advance(1)
        queue.put({"to": "carla@example.org"})
        held = queue.get("worker-2", block=0)
        assert held is not None
        clock.advance(1)
        queue.put("ünï\ncode \x1b[31m", headers={"lang": "de"})
        db.queue("mails", codec="msgpack").put({"to": "dora", 1: b"\xff"})
        queue.put({"to": "emil@example.org", "text": "word " * 40})
        db.queue("orders", "packers", codec="str").put("two pounds of tea")
        db.xgroup_create("orders", "packers", id="0")
        clock.advance(9)
        yield db
        del held
