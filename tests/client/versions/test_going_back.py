"""Which stores of this version 0.1 opens, as docs/guides/upgrading.md says. The others it calls damaged, and leaves."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.client.versions.earlier import earlier

import tidelog
from tidelog.disk.process import environment

WRITE: Final = (
    "import sys, tidelog; db = tidelog.open(sys.argv[1]); db.queue('mails').put(1); db.close()"
)
READ: Final = "import sys, tidelog; db = tidelog.open(sys.argv[1]); print(db.digest()); db.close()"
AHEAD: Final = "99999999999999-1"  # an ID ahead of every clock

Queue = tidelog.Queue


def every_option(queue: Queue) -> None:
    queue.put("a", headers={"trace": "1"}, priority=3, key="k", dedup_id="order-7")
    queue.put("b", delay=3600, retry="max=8 never=ValueError", time_limit=60)
    queue.store.schedule("nightly", "0 3 * * *", queue="reports")
    job = queue.get("worker-1")
    assert job is not None and job.nack("away")


def a_cancelled_job(queue: Queue) -> None:
    assert queue.cancel(queue.put("a", delay=3600, dedup_id="order-7"))


def a_purged_job(queue: Queue) -> None:
    queue.put("a", dedup_id="order-7")
    assert queue.purge() == 1


def until_done(queue: Queue) -> None:
    queue.put("a", dedup_id="order-7", dedup="until-done")


def replaced(queue: Queue) -> None:
    queue.put("a", dedup_id="order-7", dedup="replace")


def until_done_in_a_checkpoint(queue: Queue) -> None:
    until_done(queue)
    queue.store.checkpoint()


def idmp(queue: Queue) -> None:
    queue.store.execute_command("XADD", "orders", "IDMP", "shop", "1", "*", "item", "tea")


def idmp_ahead_of_the_clock(queue: Queue) -> None:
    queue.store.xadd("orders", {"item": "tea"}, id=AHEAD)
    idmp(queue)


# fmt: off
GOES_BACK: Final = (every_option, idmp)
STAYS: Final = (
    a_cancelled_job, a_purged_job, until_done, replaced, until_done_in_a_checkpoint, idmp_ahead_of_the_clock,
)
# fmt: on


def made(root: Path, by: Callable[[Queue], None]) -> str:
    """A store with a file of options. Returns its digest."""
    with tidelog.open(root) as db:
        by(db.queue("mails"))
        digest = db.digest()
    settings = root / "tidelog.toml"
    settings.write_text("metrics-port = 9121\n")
    settings.chmod(0o600)
    return digest


def read_by_0_1(root: Path, program: str = READ) -> subprocess.CompletedProcess[str]:
    words = [str(earlier()), "-c", program, str(root)]
    return subprocess.run(words, capture_output=True, text=True, cwd=root.parent, timeout=60)


@pytest.mark.slow
def test_it_is_told_before_it_is_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The snapshot that the warning asks for is one that 0.1 restores, also if the store goes back no more."""
    root = tmp_path / "store"
    assert read_by_0_1(root, WRITE).returncode == 0
    with tidelog.open(root) as db:
        (told,) = caplog.messages
        digest = db.digest()
    assert read_by_0_1(root).stdout.strip() == digest
    words = shlex.split(told[told.index("tidelog snapshot") : told.rindex(" (")])
    made = subprocess.run([sys.executable, "-m", *words], env=environment(), check=True)
    assert made.returncode == 0
    with tidelog.open(root) as db:
        until_done(db.queue("mails"))
    assert "StoreDamaged" in read_by_0_1(root).stderr and caplog.messages == [told]
    (snapshot,) = (root / "snapshots").glob("0*")
    back = "import sys; from tidelog.tools import cli; sys.exit(cli.run(['snapshot', 'restore', sys.argv[1], 'back']))"
    assert read_by_0_1(snapshot, back).returncode == 0
    assert read_by_0_1(snapshot.parent / "back").stdout.strip() == digest


@pytest.mark.slow
@pytest.mark.parametrize("by", GOES_BACK)
def test_it_opens(by: Callable[[Queue], None], tmp_path: Path) -> None:
    digest = made(tmp_path / "store", by)
    done = read_by_0_1(tmp_path / "store")
    assert (done.returncode, done.stdout.strip()) == (0, digest), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("by", STAYS)
def test_it_does_not_open(by: Callable[[Queue], None], tmp_path: Path) -> None:
    """0.1 does not say that a newer version wrote it. This version opens it afterwards: nothing was changed."""
    digest = made(tmp_path / "store", by)
    done = read_by_0_1(tmp_path / "store")
    assert done.returncode and "StoreDamaged" in done.stderr
    with tidelog.open(tmp_path / "store") as db:
        assert db.digest() == digest
