"""Tasks: find the functions that are jobs in a module, and check the options of a worker for them."""

from __future__ import annotations

from dataclasses import fields
from types import ModuleType
from typing import Any, Final

import click
from click.core import ParameterSource

from tidelog.functions.order import order_of
from tidelog.functions.running import RunOptions
from tidelog.functions.tasks import Tasks
from tidelog.functions.work import Work
from tidelog.store.errors import DataError
from tidelog.tools.worker.handler import NoHandler, imported, part_of

# The options of a run of tasks that have other names here, or that the command keeps itself.
NAMES: Final = {"block": "until_idle"}
OF_COMMAND: Final = {"processes": "the command starts the processes, and each of them has a run"}
_RUN: Final = {
    field.name: NAMES.get(field.name, field.name)
    for field in fields(RunOptions)
    if field.name not in OF_COMMAND
}
# The options of a worker of tasks. The module says the others.
OF_TASKS: Final = (
    *("path", "queues", "processes", "reload", "embedded", "loglevel", "log_format", "child"),
    *_RUN.values(),
)


def tasks_of(name: str, here: str) -> Tasks:
    """Import `module`, which has one object that `tidelog.tasks` returned, or `module:object`. Raises NoHandler."""
    module, colon, path = name.partition(":")
    if colon and not path or not all(part.isidentifier() for part in module.split(".")):
        raise NoHandler(
            f"{name!r} must be a module of tasks, such as shop.tasks; or name a queue and a function behind it: "
            "PATH QUEUE MODULE:FUNCTION"
        )
    there = imported(module, here)
    found = part_of(there, path) if colon else _only(there)
    if not isinstance(found, Tasks):
        raise NoHandler(f"{name!r} is not what tidelog.tasks returns, but {type(found).__name__!r}")
    return found


def work_of(name: str, here: str) -> Work:
    """The handlers of the tasks of a module, in another process. Raises NoHandler."""
    return tasks_of(name, here).work


def run_options(given: dict[str, Any]) -> RunOptions:
    """The options of the command as those of a run."""
    return RunOptions(**{name: given[option] for name, option in _RUN.items()})


def check_options(ctx: click.Context) -> None:
    """Refuse what was given on the command line and would have no effect. Raises NoHandler."""
    for name in ctx.params:
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in OF_TASKS:
            raise NoHandler(
                f"--{name.replace('_', '-')} is for one queue and its function; for tasks their module says it"
            )


def queues_of(text: str | None, tasks: Tasks) -> list[str] | dict[str, int] | None:
    """The argument of --queues: names, or names with weights. Raises NoHandler."""
    found = None if text is None else _weighted(text)
    try:
        order_of(found, tasks.queues)
    except DataError as error:
        raise NoHandler(str(error)) from error
    return found


def _weighted(text: str) -> list[str] | dict[str, int]:
    words = [word.strip() for word in text.split(",")]
    if "=" not in text:
        return words
    found: dict[str, int] = {}
    for word in words:
        name, _, weight = word.rpartition("=") if "=" in word else (word, "=", "1")
        if not weight.isdecimal() or name in found:
            raise NoHandler(f"--queues must be names, a,b, or have weights, a=3,b=1: not {text!r}")
        found[name] = int(weight)
    return found


def _only(module: ModuleType) -> Any:
    """The tasks of a module. Raises NoHandler unless it has one object of them."""
    named = {
        id(value): (name, value) for name, value in vars(module).items() if isinstance(value, Tasks)
    }
    if len(named) == 1:
        return next(iter(named.values()))[1]
    if not named:
        raise NoHandler(
            f"module {module.__name__!r} has no tasks: nothing in it is what tidelog.tasks returns"
        )
    names = ", ".join(f"{module.__name__}:{name}" for name, _ in named.values())
    raise NoHandler(f"module {module.__name__!r} has tasks of several stores; name one: {names}")
