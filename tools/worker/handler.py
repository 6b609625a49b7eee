"""Handler: find the function that `module:function` names, and other parts of modules."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from tidelog.api.queue.running.plan import takes
from tidelog.tools import exits
from tidelog.tools.failed import Failed


class NoHandler(Failed):
    """There is no such module or function, it cannot be imported, or takes no job."""

    exit_code = exits.USAGE


def load(
    name: str, here: str, count: int = 1, taken: str = "one argument, the job"
) -> Callable[..., Any]:
    """Import `module:function`; dots after the colon are allowed. Modules are found in the directory `here` first.
    It takes `count` arguments, which are `taken`.

    Raises NoHandler. The traceback of a module that raises goes to standard error.
    """
    module, colon, path = name.partition(":")
    if not (colon and module and path):
        raise NoHandler(f"{name!r} must be MODULE:FUNCTION, such as work:send")
    found = part_of(imported(module, here), path)
    if not callable(found):
        raise NoHandler(f"{name!r} is no function, but {type(found).__name__!r}")
    if not takes(found, count):
        raise NoHandler(f"{name!r} must take {taken}")
    handler: Callable[..., Any] = found
    return handler


def imported(module: str, here: str) -> ModuleType:
    """Import a module, which is found in the directory `here` first. Raises NoHandler."""
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(module, error) from error
        raise NoHandler(
            f"there is no module {error.name!r} in {here} or on the path of Python"
        ) from error
    except Exception as error:
        raise _broken(module, error) from error


def part_of(module: ModuleType, path: str) -> Any:
    """The part of a module that a name leads to; dots are allowed. Raises NoHandler."""
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NoHandler(f"module {module.__name__!r} has no {path!r}") from None
    return found


class Named:
    """A function by its name, `module:function`, for a process that cannot import it by its own: one that was
    decorated, or a method.
    """

    def __init__(self, name: str, here: str) -> None:
        """Raises NoHandler."""
        self._name, self._here, self._function = name, here, load(name, here)
        self.__qualname__ = name

    def __call__(self, job: Any) -> Any:
        return self._function(job)

    def __reduce__(self) -> Any:
        return Named, (self._name, self._here)


def _broken(module: str, error: Exception) -> NoHandler:
    traceback.print_exception(error)
    return NoHandler(f"module {module!r} cannot be imported: {type(error).__name__}: {error}")
