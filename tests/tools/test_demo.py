"""The demo: that it proves what it says, that its proof can fail, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest
from tests.tools.conftest import Run
from tests.tools.made import ids

import tidelog
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.keys.state import State
from tidelog.tools import exits
from tidelog.tools.aof.verify import Verification
from tidelog.tools.demo.child import NOBODY, Task, decode, encode, lines_of, result
from tidelog.tools.demo.command import default_files, read_lines
from tidelog.tools.demo.proof import Ledger, leftovers

LINES = [b"first", b"", b"third"]
POISONED = 1


def test_a_short_demo(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = tmp_path / "lines.txt"
    source.write_bytes(
        b"".join(b"line %d \xff\n" % n for n in range(600)) + b"\n\nno newline at the end"
    )
    done = run("demo", "--file", source, "--seconds", "4", "--seed", "5", "--fsync", "no")
    assert done.code == 0, done
    assert "603 lines of" in done.out and "seed 5" in done.out
    assert re.search(r"results +603\n", done.out)
    assert re.search(r"line \d+, delivery 1, worker-\d: ValueError: poisoned\n", done.out)
    assert re.search(
        r"line \d+ is dead: given up after 4 deliveries.*\njobs redriven .*: 1\n", done.out
    )
    kills = re.search(r"kill -9 +(\d+)\n", done.out)
    assert kills and int(kills[1]) >= 1, done.out
    assert "Proven from the files: each of the 603 lines" in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


def test_keep(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_bytes(b"a\nb\n")
    kept = tmp_path / "kept"
    assert run("demo", "--file", source, "--seconds", "1", "--keep", kept).code == 0
    with tidelog.open(kept, read_only=True) as db:
        results = db.queue("results", codec=(encode, decode)).peek()
        assert sorted(job.value for job in results) == [(0, result(b"a")), (1, result(b"b"))]
        assert len(lines_of(db)) == lines_of(db).dead.count() == 0
    again = run("demo", "--file", source, "--keep", kept)
    assert (again.code, "is not empty" in again.err) == (exits.USAGE, True)


@pytest.mark.parametrize(("name", "code"), [("missing", exits.NOT_A_STORE), ("empty", exits.USAGE)])
def test_a_file_that_is_no_use(run: Run, tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "empty").touch()
    done = run("demo", "--file", tmp_path / name)
    assert (done.code, done.out) == (code, "")
    assert name in done.err


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_a_time_that_is_none(run: Run, seconds: str) -> None:
    done = run("demo", "--lines", 5, "--seconds", seconds)
    assert (done.code, done.out) == (exits.USAGE, "")
    assert "Invalid value for '--for'" in done.err


def test_a_store_that_cannot_be_made(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--lines", 5, "--keep", tmp_path / "no" / "such")
    assert done.code == exits.SYSTEM
    assert done.err.startswith(f"tidelog: {tmp_path}/no/such: No such file or directory; create")
    assert done.err.count("\n") == 1


def test_a_child_for_which_there_is_no_room(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    task = Task(str(tmp_path / "lines"), 1, "no", 100.0, 0, NOBODY)
    child = [sys.executable, "-m", "tidelog.tools.demo.child", str(tmp_path / "data")]
    with subprocess.Popen(
        ["prlimit", "--fsize=200", *child],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONDONTWRITEBYTECODE": "1",  # a cached module would be cut short as well
        },
    ) as running:
        assert running.stdin is not None and running.stderr is not None
        running.stdin.write(task.dump())
        running.stdin.flush()  # and stays open: without a parent the child would end
        said = running.stderr.read().decode()
        assert running.wait(120) == 1
    assert "File too large" in said
    assert said.count("\n") == 1, said


def test_there_is_always_something_to_read() -> None:
    assert len(read_lines(default_files(), 2000)) >= 1000


def units() -> dict[str, list[Effect]]:
    """The log of a run that kept its promise: worker a had two lines when it was killed, and had them again. Then it
    failed at the poisoned one, as did b, which had to give it up.
    """
    rows = [(b"value", encode(item)) for item in enumerate(LINES)]
    errors = json.dumps([{"error": "ValueError: poisoned"}]).encode()
    dead = (*rows[1], b"id", b"5-1", b"errors", errors)
    # fmt: off
    return {
        "life 1":      [(e.EPOCH | END, 1, 99)],
        "group":       [(e.STREAM_CREATE, 0, b"lines"), (e.XGROUP_CREATE | END, 0, b"lines", b"workers", 0, 0, -1)],
        "put 0 1":     [(e.XADD_MANY | END, 0, b"lines", 5, 0, tuple(rows[:2]), (), ())],
        "fetch 0 1":   [claim(b"a", 1, (5, 0), (5, 1))],
        "life 2":      [(e.EPOCH | END, 2, 98)],
        "put 2":       [(e.XADD | END, 0, b"lines", 6, 0, rows[2])],
        "refetch 0 1": [claim(b"a", 2, (5, 0), (5, 1))],
        "done 0":      done(0, (5, 0)),
        "nack 1":      [
            (e.XADD_NODE, 0, b"lines:failures", 7, 0, (b"job", b"5-1")),
            (e.XADD_NODE, 0, b"lines:holds", 7, 0, (b"job", b"5-1")),
            (e.XNACK | END, 0, b"lines", b"workers", ids((5, 1)), 2),
        ],
        "fetch 2":     [claim(b"b", 1, (6, 0))],
        "done 2":      [(e.XACKDEL, 0, b"lines", b"workers", ids((6, 0)), (0, 0)), *done(2, (6, 0))[2:]],
        "retry 1":     [(e.XDEL, 0, b"lines:holds", ids((7, 0)), (0, 0)), claim(b"b", 3, (5, 1))],
        "renew 1":     [claim(b"b", 3, (5, 1))],
        "give up 1":   [(e.XADD_NODE, 0, b"lines:dead", 8, 0, dead), *gone((5, 1), END)],
        "redrive 1":   [
            (e.XADD, 0, b"lines", 9, 0, (*rows[1], b"origin", b"5-1")),
            (e.XDEL | END, 0, b"lines:dead", ids((8, 0)), (0, 0)),
        ],
        "fetch 1":     [claim(b"a", 1, (9, 0))],
        "done 1":      done(1, (9, 0)),
    }
    # fmt: on


def claim(worker: bytes, count: int, *jobs: tuple[int, int]) -> Effect:
    """A delivery, or a lease renewed."""
    return (e.DELIVER | END, 0, b"lines", b"workers", worker, ids(*jobs), 9, count, 9)


def gone(job: tuple[int, int], end: int = 0) -> list[Effect]:
    """A job leaves the queue."""
    acked = (e.XACK, 0, b"lines", b"workers", ids(job))
    return [acked, (e.XDEL | end, 0, b"lines", ids(job), (0, 0))]


def done(number: int, job: tuple[int, int]) -> list[Effect]:
    """A line is done, and its result put."""
    row = (b"value", encode((number, result(LINES[number]))))
    return [*gone(job), (e.XADD | END, 0, b"results", 10 + number, 0, row)]


def faults(made: list[Effect], lines: list[bytes] = LINES) -> list[str]:
    return booked(made).faults(lines, POISONED)


def booked(made: list[Effect]) -> Ledger:
    ledger = Ledger()
    for effect in made:
        ledger.take(effect)
    return ledger


def flat(log: dict[str, list[Effect]]) -> list[Effect]:
    return [effect for unit in log.values() for effect in unit]


def test_a_kept_promise() -> None:
    ledger = booked(flat(units()))
    assert ledger.faults(LINES, POISONED) == []
    assert (ledger.deliveries.total(), ledger.redeliveries, ledger.retries) == (7, 3, 1)
    assert (ledger.acks.total(), len(ledger.dead), len(ledger.redriven)) == (4, 1, 1)


def without(name: str) -> list[Effect]:
    log = units()
    del log[name]
    return flat(log)


def twice(name: str) -> list[Effect]:
    log = units()
    return [*flat(log), *log[name]]


def one_more(effect: Effect) -> list[Effect]:
    return [*flat(units()), effect]


# fmt: off
@pytest.mark.parametrize(("made", "fault"), [
    (without("put 2"), "1 lines that were not put"),
    (without("fetch 0 1"), None),  # delivered again later, so nothing is missing
    (without("fetch 2"), "1 jobs never delivered"),
    (without("done 2"), "1 jobs never acknowledged"),
    (without("done 2"), "1 lines without a result"),
    (without("give up 1"), "1 poisoned lines without evidence among the dead jobs"),
    (without("redrive 1"), "1 dead lines that were not redriven"),
    (twice("done 2"), "1 jobs acknowledged more than once"),
    (twice("done 2"), "1 lines with several results"),
    (twice("put 2"), "1 entry IDs used twice"),
    ([effect for effect in flat(units()) if effect[0] != e.XACKDEL],
        "1 units with an acknowledgement but without its result"),
    ([effect for effect in flat(units()) if effect[0] != e.XACK or effect[4] != ids((5, 0))],
        "1 jobs deleted before they were done"),
    (one_more((e.XADD, 0, b"lines", 11, 0, (b"value", b"9 x"))), "1 jobs that match no line of the file"),
    (one_more((e.XADD, 0, b"results", 20, 0, (b"value", b"9 x"))), "1 results that belong to no line"),
    (one_more((e.XACK, 0, b"lines", b"workers", ids((9, 9)))), "1 acknowledgements of unknown jobs"),
    (one_more(claim(b"a", 1, (9, 9))), "1 deliveries of unknown jobs"),
    (one_more((e.DEL, 0, (b"lines",))), "1 records that the demo never wrote"),
    (one_more((e.SET, 0, b"other", b"x", -1)), "1 records that the demo never wrote"),
    (one_more((e.XDEL, 0, b"results", ids((10, 0)), (0, 0))), "1 records that the demo never wrote"),
])
# fmt: on
def test_a_broken_promise_is_found(made: list[Effect], fault: str | None) -> None:
    found = faults(made)
    assert (fault in found) if fault else not found


def test_a_changed_line_is_found() -> None:
    assert faults(flat(units()), [b"first", b"", b"second"]) == [
        "1 jobs that differ from their line",
        "1 wrong results",
    ]


def test_what_the_log_replays_to(tmp_path: Path) -> None:
    with tidelog.open(tmp_path, fsync="no") as db:
        lines = lines_of(db)
        lines.put_many(enumerate(LINES))
        for job in lines.consume("a", block=0):
            job.fail()
        lines.dead.redrive()
    assert leftovers(replayed(tmp_path), 1) == [
        "3 entries left in lines, 0 of them pending",
        "0 results in the queue instead of 1",
    ]
    assert leftovers(State(), 0) == ["no stream lines", "no stream lines:dead"]


def replayed(directory: Path) -> State:
    verification = Verification(directory, with_replay=True)
    verification.run()
    assert verification.state is not None and not verification.failures
    return verification.state


def test_a_file_that_is_one_endless_line(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    for path in (sparse, Path("/dev/zero")):
        with pytest.raises(click.UsageError, match=r"line 1 has more than 65,536 bytes"):
            read_lines([path], 10)
    sparse.write_bytes(b"a\n\nb\r\nc")
    assert read_lines([sparse], 10) == [b"a", b"", b"b", b"c"]
    assert read_lines([sparse, sparse], 6) == [b"a", b"", b"b", b"c", b"a", b""]
