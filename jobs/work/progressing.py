"""Progressing: the progress of a job is the string `NAME:progress:<id>`; <id> is the ID that `put` returned.

It is deleted when the job ends, by the process that has recorded it. Otherwise it expires.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.engine.api import DEL, Context, Effect, State
from tidelog.jobs.options import Options
from tidelog.jobs.progress import Progress, unpacked

KEPT_MS: Final = 86_400_000


def progress_key(options: Options, first: bytes) -> bytes:
    """The key of the progress of a job."""
    return options.root + b":progress:" + first


def progress_of(state: State, db: int, options: Options, first: str) -> Progress | None:
    """The progress of a job, by the ID that `put` returned."""
    return unpacked(state.databases[db].keys.get(progress_key(options, first.encode())))


def ended(ctx: Context, noted: dict[int, bytes], jobs: Iterable[int]) -> list[Effect]:
    """[lock] The effects that delete the progress of jobs that end. `noted`: their keys, of those that have one."""
    keys = [key for job in jobs if (key := noted.pop(job, None)) is not None]
    return [(DEL, ctx.db, (key,)) for key in keys if ctx.lookup(key) is not None]
