"""Temporary stores: options, and that nothing of them stays, however the block ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import inside

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary directories are made; nothing may be left there."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    yield made
    assert not list(made.iterdir())


def test_a_store_is_there_for_the_block_and_gone_afterwards(place: Path) -> None:
    with testing.store() as db:
        db.xadd("s", {"a": 1})
        assert db.xlen("s") == 1 and db.fsync == "no"
        assert len(list(place.iterdir())) == 1
    assert db.closed and not list(place.iterdir())


def test_it_is_gone_when_the_block_raises_too(place: Path) -> None:
    with pytest.raises(ValueError, match="mine"), testing.store() as db:
        db.xadd("s", {"a": 1})
        raise ValueError("mine")
    assert db.closed and not list(place.iterdir())


def test_a_store_that_was_closed_in_the_block_is_gone_all_the_same() -> None:
    with testing.store() as db:
        db.set("a", 1)
        db.close()


def test_each_store_is_its_own() -> None:
    with testing.store() as one, testing.store() as other:
        one.set("a", 1)
        assert other.get("a") is None


def test_options_are_those_of_open() -> None:
    with testing.store(fsync="always", decode_responses=True, segment_bytes=4096) as db:
        db.set("a", "b")
        assert db.get("a") == "b" and db.fsync == "always"
    with pytest.raises(tidelog.DataError, match="fsync must be one of"):
        with testing.store(fsync="now"):
            pass


def test_it_may_lie_on_another_disk(place: Path) -> None:
    disk = SimulatedDisk()
    with testing.store(disk=disk) as db:
        db.set("a", "b")
        (found,) = place.iterdir()
        assert not list(found.iterdir()) and disk.listdir(found) == ["store"]


def test_without_a_clock_it_goes_by_the_systems() -> None:
    with testing.store() as db:
        assert not inside.core(db).clock.manual


def test_a_forked_child_leaves_its_parents_store_alone(place: Path) -> None:
    block = testing.store()
    db = block.__enter__()
    db.set("a", 1)
    child = os.fork()
    if not child:
        try:
            block.__exit__(None, None, None)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert len(list(place.iterdir())) == 1
    assert db.get("a") == b"1"
    block.__exit__(None, None, None)


def test_for_asyncio(place: Path) -> None:
    clock = testing.Clock()

    async def main() -> tidelog.AsyncStore:
        async with testing.astore(clock, decode_responses=True) as db:
            assert await db.xadd("s", {"a": 1}) == "1767225600000-0"
            assert len(list(place.iterdir())) == 1
        return db

    assert asyncio.run(main()).closed


def test_for_asyncio_when_the_block_raises() -> None:
    async def main() -> None:
        async with testing.astore() as db:
            await db.set("a", 1)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(main())


def test_for_asyncio_when_the_task_is_cancelled_again_while_it_leaves() -> None:
    async def hold(entered: asyncio.Event) -> None:
        async with testing.astore() as db:
            await db.set("a", 1)
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    async def main() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(hold(entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_it_needs_neither_pytest_nor_asyncio() -> None:
    source = """
import sys
from tidelog import testing
with testing.store(testing.Clock()) as db:
    db.set("a", 1)
assert not {"pytest", "asyncio"} & set(sys.modules)
"""
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(
        [sys.executable, "-c", source], env={**os.environ, "PYTHONPATH": path}, check=True
    )


FIXTURES = """
def test_store(tidelog_store, tidelog_clock):
    tidelog_store.set("a", 1, ex=10)
    tidelog_clock.advance(10.001)
    assert tidelog_store.get("a") is None

def test_a_store_of_its_own(tidelog_store):
    assert tidelog_store.dbsize() == 0
"""


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tidelog.testing.fixtures"]\n')
    (tmp_path / "test_it.py").write_text(FIXTURES)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
