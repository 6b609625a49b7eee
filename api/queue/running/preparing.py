"""Preparing: what another process needs of this one to work for it: the program's modules, its handler."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from tidelog.store.errors import DataError

isolated = False  # this process works for a run with `isolate="process"`


def preparation() -> dict[str, Any]:
    """The part of `multiprocessing.spawn.get_preparation_data` that is about imports. That function also fixes the
    method by which this process starts others, which is for the program to decide.
    """
    found: dict[str, Any] = {"sys_path": [*sys.path], "sys_argv": sys.argv, "dir": os.getcwd()}
    main = sys.modules["__main__"]
    name, path = getattr(main.__spec__, "name", None), getattr(main, "__file__", None)
    if name is not None:
        found["init_main_from_name"] = name
    elif path is not None:
        found["init_main_from_path"] = os.path.abspath(path)
    return found


def check_importable(*named: tuple[str, Any]) -> None:
    """Raise DataError, with its name, for a value that another process cannot import."""
    for what, value in named:
        try:
            pickle.dumps(value)
        except Exception as error:
            raise DataError(
                f"another process cannot import the {what} {value!r} by its name; make it a function or class of a "
                f"module: {error}"
            ) from error
