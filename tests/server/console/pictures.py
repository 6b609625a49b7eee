"""The pictures of docs/guides/console.md: a store of an invented shop, and the pages of its console.

    python -m tests.server.console.pictures

writes them into docs/guides/. A test takes them too, and compares what the pages say.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.server.console import chromium
from tests.server.ports import free_port

import tidelog
from tidelog.testing import Clock

GUIDES: Final = Path(__file__).parents[3] / "docs/guides"
START: Final = datetime(2026, 1, 12, 9, tzinfo=UTC)
TO: Final = ("anna", "bert", "carla", "dora", "emil", "fritz", "greta")
DARK: Final = {"name": "prefers-color-scheme", "value": "dark"}
# A traceback that is the same on every machine.
SEND: Final = "def send(to):\n    raise TimeoutError(f'no answer from the mail server of {to}')\nsend('example.org')\n"


def fill(db: tidelog.Store, clock: Clock) -> None:
    """Ten minutes of the shop: mails, two of them dead, and orders that a group packs."""
    mails, invoices = db.queue("mails", max_deliveries=1), db.queue("invoices")
    worker = mails.consume("mailer-1", block=0)
    for number in range(60):
        order = db.xadd("orders", {"item": "tea", "count": str(number % 5 + 1)})
        assert order
        mails.put({"to": f"{TO[number % 7]}@example.org", "order": number}, headers={"shop": "tea"})
        if number % 3 == 0:
            invoices.put({"order": number})
        if number < 55:
            job = next(worker)
            if number in (20, 41):
                try:
                    exec(compile(SEND, "mailer.py", "exec"), {})
                except TimeoutError as error:
                    assert error.__traceback__ is not None
                    job.fail(error.with_traceback(error.__traceback__.tb_next))
            else:
                job.ack()
        clock.advance(10)
    db.xgroup_create("orders", "packers", "0")
    packed = db.xreadgroup("packers", "packer-1", {"orders": ">"}, count=40)
    assert packed
    db.checkpoint()


def work(db: tidelog.Store, clock: Clock, minute: int) -> None:
    """A minute of the shop between two looks, with a rush of orders in the middle."""
    mails, invoices = db.queue("mails"), db.queue("invoices")
    orders = 6 + (minute % 4) + (12 if 12 <= minute < 18 else 0)
    mails.put_many([{"to": f"{TO[n % 7]}@example.org", "order": 60 + n} for n in range(orders)])
    invoices.put({"order": minute})
    for _, job in zip(range(9), mails.consume("mailer-1", block=0), strict=False):
        job.ack()
    if minute == 39:
        assert mails.get("mailer-2") is not None
        mails.put({"to": "anna@example.org", "reminder": True}, delay=3600)
    clock.advance(60 if minute < 39 else 5)


def taken(
    page: chromium.Page, home: str, db: tidelog.Store, clock: Clock
) -> Iterator[tuple[str, bytes]]:
    """(name, PNG) of each picture."""
    page.size(1000, 310)
    page.go(home)
    page.until("document.body.dataset.drawn === 'queues'")
    for minute in range(40):
        work(db, clock, minute)
        page.again()
    page.until("document.querySelector('main').innerText.includes('/s')")
    yield "console-queues.png", page.picture()
    page.size(1000, 1120)
    page.press("mails")
    page.until("document.body.dataset.drawn === 'queue'")
    page.click("#dead summary")
    page.until("document.querySelector('#dead details').open")
    yield "console-queue.png", page.picture()
    page.size(1000, 760)
    page.call("Emulation.setEmulatedMedia", features=[DARK])
    page.click("#dead dd a")
    page.until("document.body.dataset.drawn === 'job'")
    yield "console-job.png", page.picture()


def main() -> None:
    if chromium.program() is None:
        sys.exit("this machine has no browser; apt-get install chromium")
    clock = Clock(START)
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as place,
        tidelog.open(Path(place, "orders-data"), clock=clock) as db,
    ):
        fill(db, clock)
        with (
            tidelog.serve(db, port=0, metrics_port=port),
            chromium.opened(Path(place, "browser")) as page,
        ):
            for name, picture in taken(page, f"http://127.0.0.1:{port}/console", db, clock):
                (GUIDES / name).write_bytes(picture)
                print(f"{name}: {len(picture):,} bytes")


if __name__ == "__main__":
    main()
