"""`rm -rf` of the directory of an open store: noticed soon, with one error, and nothing is made there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.client.owners import ended_owner
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.process import environment
from tidelog.tools import exits

NOTICED_S = 10.0  # on an idle machine a second: here others may be busy


def remove(root: Path) -> None:
    """As `rm -rf`, also while the writer makes one more file."""

    def gone() -> bool:
        shutil.rmtree(root, ignore_errors=True)
        return not root.exists()

    until(gone, "files come again")


class Waiting:
    """A thread that waits for a job without a limit of time, and what ended the wait."""

    def __init__(self, queue: Any) -> None:
        self.error: BaseException | None = None
        self._queue = queue
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self._queue.get(block=None)
        except tidelog.TidelogError as error:
            self.error = error

    def ended(self) -> str:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive() and self.error is not None
        return str(self.error)


def test_an_embedded_store(tmp_path: Path) -> None:
    root = tmp_path / "db"
    with tidelog.open(root) as db:
        mails = db.queue("mails")
        mails.put(1)
        with mails.get(block=0) as job:  # type: ignore[union-attr]
            assert job.value == 1
        waiting = Waiting(mails)
        remove(root)
        began = time.monotonic()
        assert f"{root} was removed while the store was open" in waiting.ended()
        assert time.monotonic() - began < NOTICED_S
        for call in (
            lambda: mails.put(2),
            mails.stats,
            lambda: db.xadd("s", {"a": 1}),
            db.checkpoint,
        ):
            with pytest.raises(tidelog.StoreClosed, match="restore a backup"):
                call()
    assert not root.exists()
    with tidelog.open(root) as again:  # a new store, and a whole one
        assert not again.keys() and again.queue("mails").put(1)


def test_a_directory_that_is_moved_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing is lost, neither there nor back again."""
    root, there = tmp_path / "db", tmp_path / "there"

    def told() -> int:
        return sum(f"{root} was moved" in message for message in caplog.messages)

    with tidelog.open(root) as db:
        mails = db.queue("mails")
        mails.put(1)
        for turn in 1, 2:
            root.rename(there)
            until(lambda: told() == turn)  # noqa: B023  # it is called here alone
            mails.put(2)
            time.sleep(0.3)  # three looks more
            assert told() == turn and not root.exists()
            there.rename(root)
            until(lambda: not inside.checkpoints(db)._moved)
        db.checkpoint()
        root.rename(there)
    with tidelog.open(there) as db:
        assert [job.value for job in db.queue("mails").peek()] == [1, 2, 2]
    assert not root.exists()


def test_a_store_that_took_the_place_is_another_one(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "new") as new:
        new.set("a", 1)
    root = tmp_path / "db"
    with tidelog.open(root) as db:
        mails = db.queue("mails")
        mails.put(1)
        waiting = Waiting(db.queue("others"))
        remove(root)
        (tmp_path / "new").rename(root)
        assert "was removed while the store was open" in waiting.ended()
    with tidelog.open(root) as there:
        assert there.keys() == [b"a"]


def test_a_served_store(tmp_path: Path) -> None:
    """The owner ends, and a client that knew the store begins no new one in its place."""
    root = tmp_path / "db"
    with ended_owner(root), tidelog.connect(root) as db:
        mails = db.queue("mails")
        mails.put(1)
        waiting = Waiting(db.queue("others"))
        time.sleep(0.1)
        remove(root)
        began = time.monotonic()
        assert f"{root} was removed while" in waiting.ended()
        assert time.monotonic() - began < NOTICED_S
        with pytest.raises(tidelog.TidelogError):
            mails.put(2)  # the owner may end in the middle of it
        with pytest.raises(tidelog.TidelogError, match="was removed"):
            mails.put(3)
        assert not root.exists()
        with tidelog.connect(root) as again:
            assert not again.keys()


def test_a_server_ends_and_says_why(tmp_path: Path) -> None:
    root = tmp_path / "db"
    command = [
        sys.executable,
        "-m",
        "tidelog",
        "serve",
        str(root),
        "--port",
        "0",
        "--unixsocket",
        "other.sock",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        until(lambda: (root / "serve.sock").exists(), "it never listens")
        with tidelog.connect(root) as db:
            db.set("a", 1)
            remove(root)
            _, said = process.communicate(timeout=PATIENCE_S)
        last = said.splitlines()[-1]
        assert last.startswith(f"tidelog: {root} was removed while the store was open")
        assert process.returncode == exits.NOT_A_STORE and not root.exists()
    finally:
        process.kill()
        process.wait()
