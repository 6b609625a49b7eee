"""`tidelog demo`: put the lines of a real file through a queue whose process is killed again and again.

The parent starts a child (tools/demo/child.py), kills it with SIGKILL at a random moment and starts it again, until a
child ends by itself because every line is done or dead: one line is poisoned. The parent redrives that one, and starts
and kills more children, which can finish it. The proof reads only the files of the log, not the store
(tools/demo/proof.py).
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

import tidelog
from tidelog.aof.errors import NotAStore
from tidelog.aof.frame import HEADER_BYTES
from tidelog.aof.reading.reader import records_of
from tidelog.engine.effects.as_commands import added
from tidelog.engine.effects.effect import OPCODE
from tidelog.tools import console, exits
from tidelog.tools.aof.verify import Verification
from tidelog.tools.demo.child import NOBODY, WHOLE_LOG, Task, lines_of
from tidelog.tools.demo.proof import ADDS, DONE, Ledger, leftovers
from tidelog.tools.heads import tool_command
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.times import duration, renamed

SYSTEM_LOG: Final = Path("/var/log/dpkg.log")
LINES_MIN: Final = 1000  # fewer are too short for a demo
LINE_BYTES_MAX: Final = 64 << 10
LIFE_SECONDS: Final = (0.4, 2.6)  # of a child, from its start to the kill
# The workers run this many times faster than asked for, because they are dead for much of the time.
PACE: Final = 4
POLL_SECONDS: Final = 0.05
# if the workers take this much longer than expected, something hangs
PATIENCE_SECONDS: Final = 60.0


@dataclass
class Course:
    """Figures about the kills. `begun`: monotonic seconds."""

    begun: float

    kills: int = 0
    seconds: float = 0.0


@tool_command(
    "tidelog demo",
    "tidelog demo --file access.log --lines 100000 --for 30s",
    codes=(exits.OK, exits.FAILED, exits.USAGE, exits.SYSTEM),
)
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, readable=False),
    help="Text file whose lines become jobs.",
)
@click.option(
    "--lines",
    default=20_000,
    show_default=True,
    type=click.IntRange(1),
    help="Use at most this many lines.",
)
@duration(
    "--for",
    "seconds",
    formerly=("--seconds",),
    default=15.0,
    show_default=True,
    least=1,
    most=86_400,
    help="Approximate duration of the demo.",
)
@click.option(
    "--workers",
    default=4,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Number of workers.",
)
@click.option(
    "--fsync",
    default="always",
    show_default=True,
    type=click.Choice(["always", "everysec", "no"]),
    help="The fsync policy of the store.",
)
@click.option(
    "--seed",
    type=int,
    help="Seed of the random moments. The demo prints it, so that you can repeat a run.",
)
@renamed(
    "--store",
    "keep",
    formerly=("--keep",),
    type=click.Path(path_type=Path),
    help="Create the store in this directory and keep it.",
)
def command(
    path: Path | None,
    lines: int,
    seconds: float,
    workers: int,
    fsync: str,
    seed: int | None,
    keep: Path | None,
) -> int:
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    files = [path] if path else default_files()
    texts = read_lines(files, lines)
    if not texts:
        raise click.UsageError(f"{files[0]} has no lines")
    if keep and keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"{keep} is not empty; name a new directory")
    source = str(files[0]) if len(files) == 1 else f"{len(files)} files under {files[0].parent}"
    click.echo(f"{len(texts):,} lines of {source}, {workers} workers, fsync={fsync}, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="tidelog-demo-") as place:
        # Read a copy, because a system log may grow or be rotated while the demo runs.
        copy = Path(place, "lines")
        copy.write_bytes(b"".join(line + b"\n" for line in texts))
        directory = keep or Path(place, "data")
        # Open the store here first. Then this process reports errors of the open, and not a child.
        tidelog.open(directory, retain_bytes=WHOLE_LOG).close()
        dice = random.Random(seed)
        poisoned = dice.randrange(len(texts) // 3 + 1)  # early: it takes several deliveries to die
        task = Task(str(copy), workers, fsync, len(texts) / seconds * PACE, seed, poisoned)
        course, seen = Course(time.monotonic()), Progress(directory)
        run(task, seen, course, dice, seconds, len(texts))
        show_poisoned(task, directory)
        # Dead jobs are the poisoned line, and lines whose workers were killed too often.
        while count := redrive(task, directory):
            click.echo(f"jobs redriven to workers that can finish them: {count:,}")
            run(replace(task, poisoned=NOBODY), seen, course, dice, seconds, len(texts))
        code = prove(directory, texts, task, course)
    if keep:
        click.echo(f"The store is in {keep}; try  tidelog queue failures {keep} lines")
    return code


def read_lines(files: list[Path], limit: int) -> list[bytes]:
    """The first `limit` lines of the files one after the other, without their ends. Raises UsageError, OSError."""
    lines: list[bytes] = []
    for path in files:
        with path.open("rb") as file:
            while len(lines) < limit and (line := file.readline(LINE_BYTES_MAX + 1)):
                # A device, or a file with a large hole, can be one line without an end.
                if len(line) > LINE_BYTES_MAX:
                    raise click.UsageError(
                        f"{path}: line {len(lines) + 1} has more than {LINE_BYTES_MAX:,} bytes; name a text file"
                    )
                lines += line.splitlines()
    return lines[:limit]


def default_files() -> list[Path]:
    """The system's package log if it is long enough, else the sources of Python's standard library."""
    try:
        if len(read_lines([SYSTEM_LOG], LINES_MIN)) >= LINES_MIN:
            return [SYSTEM_LOG]
    except (OSError, click.UsageError):
        pass  # missing, not readable, or not a log
    return sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


def start(task: Task, directory: Path) -> subprocess.Popen[bytes]:
    """Start a child with this interpreter and import path, and send it its task."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tidelog.tools.demo.child", str(directory)],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdin is not None
    child.stdin.write(task.dump())
    child.stdin.flush()  # stays open: the child ends when it closes
    return child


def run(
    task: Task, seen: Progress, course: Course, dice: random.Random, seconds: float, lines: int
) -> None:
    """Start, kill, start again, until a child ends by itself. Raises click.ClickException if none does."""
    patience = 1.0
    with console.progress("done", lines) as advance:
        advance(seen.done)
        while True:
            # Let the children live longer if their lives are too short to finish the work on this machine, or if the
            # time is up.
            overtime = course.seconds > seconds
            patience = patience * 1.5 if seen.stalled or overtime else 1.0
            life_s = dice.uniform(*LIFE_SECONDS) * patience
            code = one_life(start(task, seen.directory), life_s, seen, advance)
            course.seconds = time.monotonic() - course.begun
            if code == 0:
                return
            if code != -signal.SIGKILL:
                raise click.ClickException(
                    f"the child ended with exit code {code}; see its error above"
                )
            course.kills += 1
            if course.seconds > seconds * 2 + PATIENCE_SECONDS:
                raise click.ClickException(
                    f"the queue was not finished after {course.seconds:.0f} seconds"
                )


def one_life(
    child: subprocess.Popen[bytes], life_s: float, seen: Progress, advance: console.Advance
) -> int:
    """Let a child live for `life_s` seconds, unless it ends earlier. Returns its exit code; -9 if it was killed."""
    before = seen.done
    end = time.monotonic() + life_s
    try:
        while child.poll() is None and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
            advance(seen.look())
    finally:
        child.kill()
        code = child.wait()
        assert child.stdin is not None
        child.stdin.close()
    advance(seen.look())
    seen.stalled = seen.done == before
    return code


class Progress:
    """Counts the lines that have results, by reading the log while the child runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: LogFiles | None = None  # None until the first child has created the store
        self.done = 0
        self.stalled = False  # whether the last child finished no line

    def look(self) -> int:
        """Read the new part of the log. Returns the number of results in it."""
        if self.files is None:
            try:
                self.files = LogFiles(self.directory)
            except NotAStore:
                return 0
        new = sum(
            sum(1 for _ in added(effect))
            for path, frame in self.files.new()
            for effect in records_of(path, frame)
            if effect[0] & OPCODE in ADDS and effect[2] == DONE
        )
        self.done += new
        return new


def show_poisoned(task: Task, directory: Path) -> None:
    """Show what became of the poisoned line. Raises click.ClickException if it is not among the dead once."""
    with tidelog.open(directory, read_only=True) as db:
        found = lines_of(db).dead.list(where=lambda job: job.value[0] == task.poisoned)
        if len(found) != 1:
            raise click.ClickException(
                f"line {task.poisoned + 1:,} must be among the dead jobs exactly once, but is there {len(found)} times"
            )
        for number, failure in enumerate(found[0].errors, 1):
            click.echo(
                f"line {task.poisoned + 1:,}, delivery {number}, {failure.worker}: {failure.error}"
            )
        click.echo(f"line {task.poisoned + 1:,} is dead: {found[0].reason}")


def redrive(task: Task, directory: Path) -> int:
    """Redrive all dead jobs. Returns their number."""
    with tidelog.open(directory, fsync=task.fsync, retain_bytes=WHOLE_LOG) as db:
        return lines_of(db).dead.redrive()


def prove(directory: Path, texts: list[bytes], task: Task, course: Course) -> int:
    """Read the whole log, compare, and print the result. Returns an exit code."""
    ledger = Ledger()
    files = LogFiles(directory)
    size = 0
    with console.progress("reading the log", files.size(), size=True) as advance:
        for path, frame in files.frames():
            size += HEADER_BYTES + len(frame.body)
            advance(HEADER_BYTES + len(frame.body))
            for effect in records_of(path, frame):
                ledger.take(effect)
    payload = sum(map(len, texts))
    lines = len(ledger.put)
    # fmt: off
    console.table(("WHAT", "COUNT"), (
        ("lines put",                  f"{lines:,}"),
        ("delivered",                  f"{ledger.deliveries.total():,}"),
        ("again, after a kill",        f"{ledger.redeliveries - ledger.retries:,}"),
        ("again, after a failure",     f"{ledger.retries:,}"),
        ("dead, and redriven",         f"{len(ledger.redriven):,}"),
        ("results",                    f"{sum(map(len, ledger.results.values())):,}"),
        ("kill -9",                    f"{course.kills:,}"),
        ("seconds",                    f"{course.seconds:.1f}"),
        ("lines per second",           f"{lines / course.seconds:,.0f}"),
        ("bytes of the lines",         f"{payload:,}"),
        ("bytes of the log",           f"{size:,}"),
    ), right="COUNT")
    # fmt: on
    verification = Verification(directory, with_replay=True)
    verification.run()
    faults = [
        *ledger.faults(texts, task.poisoned),
        *(f"{check}: {text}" for check, text in verification.failures),
        *(leftovers(verification.state, len(texts)) if verification.state else ()),
    ]
    for fault in faults:
        click.echo(f"BROKEN: {fault}")
    if faults:
        return exits.FAILED
    click.echo(
        f"Proven from the files: each of the {lines:,} lines was put once, in order, delivered at least once, "
        "and has exactly one result. Nothing is pending, and every byte of the log is verified."
    )
    return exits.OK
