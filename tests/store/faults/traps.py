"""An exception at a chosen line of the commit path."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

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


class Trap:
    """Counts the lines executed in the commit path, and raises at one of them."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.at, self.error, self.lines = at, error, 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code in FUNCTIONS or code.co_filename.startswith((ENGINE, ENGINE_REAL)):
            return self.line
        return None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if not text.startswith(("with ", "try:")):
                self.lines += 1
                if self.lines == self.at:
                    self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}: {text}"
                    sys.settrace(None)
                    raise self.error("trapped")
        return self.line

    def run(self, call: Call, db: tidelog.Store) -> BaseException | None:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call(db)
        except BaseException as error:
            return error
        finally:
            sys.settrace(before)
        return None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sync: what a power cut takes is tested elsewhere, and here a log is begun anew a thousand times."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(RealFile, name, lambda file: None)
    monkeypatch.setattr(RealDisk, "sync_directory", lambda disk, path: None)
