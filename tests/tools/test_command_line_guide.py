"""The guide "The command line": every console block shows what its commands print, and `...` what it leaves out.

The blocks about snapshots and `verify` are followed by test_checkpoint_docs.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.made import orders
from tests.tools.page_blocks import shows
from tests.tools.queue_made import START, mails
from tests.tools.test_diff import parted

import tidelog
from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.write import string
from tidelog.testing import Clock
from tidelog.tools import cli, exits
from tidelog.tools.queue import store as queue_store

GUIDES = Path(__file__).parents[2] / "docs/guides"
PAGE = GUIDES / "command-line.md"
MOVING = GUIDES / "moving-from-redis.md"
ROOT = Path("orders-data")
FOLLOWED_ELSEWHERE = re.compile("snapshot|verify$")
WITH_SERVERS = re.compile("replica ")  # its addresses and ages are of machines that are not here


def released(root: Path, clock: Clock) -> None:
    """A store with two entries that XNACK released, and a consumer that has read nothing."""
    with tidelog.open(root, fsync="no", clock=clock) as db:
        for n in range(5):
            db.xadd("orders", {"item": "tea", "n": n})
        db.xgroup_create("orders", "packers", id="0")
        ((_, entries),) = db.xreadgroup("packers", "anna", {"orders": ">"})
        db.xgroup_createconsumer("orders", "packers", "ben")
        db.xnack("orders", "packers", "SILENT", *(entry_id for entry_id, _ in entries[:2]))


def moved(root: Path, clock: Clock) -> None:
    """dump.rdb: what a Redis has that tidelog takes, and two hashes."""
    source = root.with_name("source")
    with tidelog.open(source, fsync="no", clock=clock) as db:
        for key, count in (("orders", 100_000), ("payments", 19_000), ("mails", 1000)):
            for base in range(0, count, 10_000):
                db.xadd_many(key, [{"n": base + n} for n in range(min(count - base, 10_000))])
            db.xgroup_create(key, "workers", id="0")
        db.xgroup_create("orders", "packers", id="0")
        db.xreadgroup("packers", "anna", {"orders": ">"}, count=300)
        db.xreadgroup("workers", "ben", {"mails": ">"}, count=11)
        db.set("balance", "7")
        db.set("session", "x", px=timedelta(days=90_000))
    assert cli.run(["rdb", "export", str(source), "dump.rdb"]) == exits.OK
    dump = Path("dump.rdb")
    body = dump.read_bytes()[:-9]  # without the end and its checksum
    for name, value in ((b"sessions", b"s" * 1020), (b"config", b"c" * 79)):
        body += b"\x04" + string(name) + b"\x01" + string(b"field") + string(value)
    body += b"\xff"
    dump.write_bytes(body + crc64(body).to_bytes(8, "little"))


def of_mails(root: Path, clock: Clock) -> None:
    with mails(root, clock):
        pass


# fmt: off
# The section of the page, and what makes the store of its examples.
SECTIONS: dict[str, Callable[[Path, Clock], object]] = {
    "queue ls":       of_mails,
    "queue stats":    of_mails,
    "queue peek":     of_mails,
    "queue failures": of_mails,
    "queue dead":     of_mails,
    "queue schedule": lambda root, clock: tidelog.open(root, fsync="no", clock=clock).close(),
    "diff":           lambda root, clock: parted(root.parent),
    "aof dump":       lambda root, clock: orders(root),
    "rdb export":     released,
    "import":         moved,
}
# fmt: on


def sections() -> dict[str, list[str]]:
    """The console blocks of each section that has some, and the report of an import that another guide shows."""
    (report,) = re.findall(
        r"^```text\n(orders-data contains .*?)^```$", MOVING.read_text(), re.M | re.S
    )
    found = {"import": [f"$ tidelog import {ROOT} dump.rdb\n{report}"]}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]:
        blocks = re.findall(r"^```console\n(.*?)^```$", part, re.M | re.S)
        if blocks:
            found[part.partition("\n")[0]] = blocks
    return found


def test_every_block_is_followed() -> None:
    found = {*sections()}
    rest = found - {*SECTIONS}
    assert {*SECTIONS} <= found
    assert all(FOLLOWED_ELSEWHERE.match(name) or WITH_SERVERS.match(name) for name in rest), rest


def shown(run: Run, block: str) -> str:
    """A block as it stands, with the output of now."""
    told = []
    for line in block.splitlines():
        if line.startswith("$ "):
            words = shlex.split(line[2:])
            assert words[0] == "tidelog", line
            done = run(*words[1:])
            told.append(f"{line}\n{done.out}{done.err}")
    return "".join(told)


@pytest.mark.parametrize("name", SECTIONS)
def test_examples(run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(START)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queue_store, "CLOCK", clock)
    with redirect_stdout(StringIO()):
        SECTIONS[name](ROOT, clock)
    for block in sections()[name]:
        told = shown(run, block)
        assert shows(block, told), told
