"""Plants one change into one module while Python loads it. Nothing on the disk changes.

Python imports `sitecustomize` when it starts. So with this directory on PYTHONPATH the change reaches the process
and every Python that it starts, as long as they pass the environment on. Two variables say what to do:

    TIDELOG_MUTANT       JSON: {"file": "aof/log.py", "anchor": ..., "replacement": ...}
    TIDELOG_MUTANT_MARK  a file that gets one byte whenever the change was planted, so that a run proves that it was

An anchor that is not in the source exactly once is an ImportError of that module. The gate looks before it starts.
This module stands alone on purpose: a child may have nothing else on its path.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

CHANGE = "TIDELOG_MUTANT"
MARK = "TIDELOG_MUTANT_MARK"


def changed(source: str, anchor: str, replacement: str) -> str:
    """The source with its one anchor replaced. Raises ValueError if there is none, or are several."""
    count = source.count(anchor)
    if count != 1:
        raise ValueError(f"the anchor must be there exactly once and is there {count} times")
    return source.replace(anchor, replacement)


def module_name(file: str) -> str:
    """The module that a file of a code folder is loaded as: `aof/log.py` is `tidelog.aof.log`."""
    return "tidelog." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads from changed source. It neither reads nor writes cached bytecode, which is that of the original."""

    def __init__(self, name: str, path: str, anchor: str, replacement: str) -> None:
        super().__init__(name, path)
        self._anchor, self._replacement = anchor, replacement

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = importlib.util.decode_source(self.get_data(path))
        try:
            source = changed(source, self._anchor, self._replacement)
        except ValueError as error:
            raise ImportError(f"{path}: {error}") from error
        code = compile(source, path, "exec", dont_inherit=True)
        mark = os.environ.get(MARK)
        if mark:
            descriptor = os.open(mark, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, b"x")
            os.close(descriptor)
        return code


class Planter(importlib.abc.MetaPathFinder):
    """Finds the one module that is to be changed, and no other."""

    def __init__(self, file: str, anchor: str, replacement: str) -> None:
        self._module = module_name(file)
        self._anchor, self._replacement = anchor, replacement

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, self._anchor, self._replacement)
        return spec


_change = os.environ.get(CHANGE)
if _change:
    sys.meta_path.insert(0, Planter(**json.loads(_change)))
