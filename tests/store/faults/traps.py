"""An exception at a chosen line of the commit path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from tests.traps import Trap

import tidelog
from tidelog.aof.log import Log
from tidelog.disk.real import RealDisk, RealFile
from tidelog.store.commit import batch, core, landing
from tidelog.store.commit.blocked import Waits
from tidelog.store.commit.gathering import Gathering
from tidelog.store.commit.landing import Landing

Call = Callable[[tidelog.Store], Any]
ENGINE = str(Path(inspect.getfile(tidelog)).parent / "engine")
ENGINE_REAL = str(Path(ENGINE).resolve())
FUNCTIONS = {
    function.__code__
    for owner, names in (
        (core.Core, "run command add _add_slowly decided decide"),
        (Landing, "begin land land_packed ready reserve observe"),
        (landing, "pack_unit"),
        (Waits, "serve _visit takers hand_out"),
        (batch, "run_transaction run_pipeline"),
        (
            batch._Batch,
            "__init__ _new_frame unit units _part _append _takers _hand_out _words _plain _plain_as_words _many",
        ),
        (Gathering, "__init__ begin reserve take pack apply applied append"),
        (Log, "reserve add _write flush"),
    )
    for name in names.split()
    for function in [getattr(owner, name)]
}


class Boom(Exception):
    """Something that nobody expects."""


def on_the_commit_path(code: CodeType) -> bool:
    return code in FUNCTIONS or code.co_filename.startswith((ENGINE, ENGINE_REAL))


def trap_at(number: int, error: type[BaseException], seen: Collection[str] = ()) -> Trap:
    """A trap at a line of the commit path, counted from 1, without the lines in `seen`."""
    return Trap(number - 1, on_the_commit_path, error, seen)


def raised(trap: Trap, call: Call, db: tidelog.Store) -> BaseException | None:
    """The error of a call that runs into the trap."""
    try:
        trap.run(lambda: call(db))
    except BaseException as error:
        return error
    return None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sync: what a power cut takes is tested elsewhere, and here a log is begun anew a thousand times."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(RealFile, name, lambda file: None)
    monkeypatch.setattr(RealDisk, "sync_directory", lambda disk, path: None)
