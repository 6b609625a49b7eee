"""Lives: something takes the steps of a workload on a recorded disk, from its opening to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tidelog.crash.commits import commits_noted
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import Stage
from tidelog.crash.trace import Trace, Tree, Unit, versions

Step = list[Any]  # a name and numbers


class Living(Protocol):
    """A store, or a log alone, that is open and takes steps. `units` is what it was asked to do and has done."""

    units: list[Unit]

    def run(self, step: Step) -> None:
        """Take one step."""
        ...

    def end(self) -> None:
        """Close it."""
        ...


L = TypeVar("L", bound=Living)


def recorded(
    stage: Stage,
    policy: str,
    steps: list[Step],
    about: dict[str, Any],
    base: Tree | None,
    before: list[Unit] | None,
    begin: Callable[[RecordingDisk, Path, list[Unit]], L],
) -> tuple[Trace, L]:
    """Record a life from `begin` to its end. Also the life. Raises what a step raises.

    base     what is on the disk before; None for nothing
    before   the units that are in it
    begin    called with the disk, the directory that holds the store, and the units
    """
    units = before or []
    inner, root = stage.lay(base or {})
    disk = RecordingDisk(inner, root)
    disk.promise(len(units), len(units), len(units))
    with commits_noted():
        life = begin(disk, root, units)
        try:
            for step in steps:
                life.run(step)
            life.end()
        except BaseException:
            # The error that ended the life is the one to be told.
            with suppress(Exception):
                life.end()
            raise
    about = {**about, "steps": steps, "policy": policy, **versions()}
    return disk.trace(about, life.units), life
