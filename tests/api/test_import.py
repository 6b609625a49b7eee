"""Modules that a program loads: those of asyncio come with the first use of the asyncio face, and not before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tidelog

HEAVY = ("asyncio", "inspect", "ssl", "socket", "concurrent.futures")
OF_FOLLOWERS = (
    "json",
    "tidelog.replication",
    "tidelog.aof.received",
    "tidelog.aof.rewind",
    "tidelog.store.commit.following",
)
USE = """
import tempfile, tidelog
with tempfile.TemporaryDirectory() as place, tidelog.open(place + "/s") as db:
    db.xadd("s", {"a": 1}); db.pipeline().xlen("s").execute()
"""


def loaded(program: str, modules: tuple[str, ...] = HEAVY) -> set[str]:
    """Which of these modules a program ends up with."""
    source = f"{program}\nimport sys; print(*(m for m in {modules} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", source],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_a_program_of_threads_pays_nothing_for_asyncio() -> None:
    assert not loaded(USE)


def test_a_program_that_never_follows_pays_nothing_for_following() -> None:
    assert not loaded(USE, OF_FOLLOWERS)


def test_the_asyncio_face_is_there_when_it_is_asked_for() -> None:
    assert "asyncio" in loaded("from tidelog import aopen, AsyncStore")
    assert tidelog.AsyncStore is tidelog.AsyncStore
    assert {"aopen", "AsyncStore"} <= set(dir(tidelog))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tidelog.nothing
