"""The demo: that it proves what it says, that its proof can fail, and that it leaves nothing behind."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.made import ids

import tidelog
from tidelog.engine import effects as e
from tidelog.engine.effects import END, Effect
from tidelog.tools import exits
from tidelog.tools.demo import default_files, read_lines
from tidelog.tools.demo_proof import Ledger

LINES = [b"first", b"", b"third"]


def test_a_short_demo(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = tmp_path / "lines.txt"
    source.write_bytes(
        b"".join(b"line %d \xff\n" % n for n in range(600)) + b"\n\nno newline at the end"
    )
    done = run("demo", "--file", source, "--seconds", "4", "--seed", "7", "--fsync", "no")
    assert done.code == 0, done
    assert "603 lines of" in done.out and "seed 7" in done.out
    assert re.search(r"acknowledged +603\n", done.out)
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
        assert [fields[b"line"] for _, fields in db.xrange("lines")] == [b"a", b"b"]
    again = run("demo", "--file", source, "--keep", kept)
    assert (again.code, "is not empty" in again.err) == (exits.USAGE, True)


@pytest.mark.parametrize(("name", "code"), [("missing", exits.NOT_A_STORE), ("empty", exits.USAGE)])
def test_a_file_that_is_no_use(run: Run, tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "empty").touch()
    done = run("demo", "--file", tmp_path / name)
    assert (done.code, done.out) == (code, "")
    assert name in done.err


def test_a_store_that_cannot_be_made(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--lines", 5, "--keep", tmp_path / "no" / "such")
    assert done.code == exits.SYSTEM
    assert done.err.startswith(f"tidelog: {tmp_path}/no/such: No such file or directory; create")
    assert done.err.count("\n") == 1


def test_there_is_always_something_to_read() -> None:
    assert len(read_lines(default_files(), 2000)) >= 1000


def history() -> list[Effect]:
    """The log of a run that kept its promise: worker a had two messages and died, then had them again."""
    rows = [(b"n", b"%d" % n, b"line", line) for n, line in enumerate(LINES)]
    return [
        (e.EPOCH | END, 1, 99),
        (e.STREAM_CREATE, 0, b"lines"),
        (e.XGROUP_CREATE | END, 0, b"lines", b"workers", 0, 0, -1),
        (e.XADD_MANY | END, 0, b"lines", 5, 0, tuple(rows[:2]), (), ()),
        (e.XCLAIM | END, 0, b"lines", b"workers", b"a", ids((5, 0), (5, 1)), 9, 1, 9, 5, 1, 2),
        (e.EPOCH | END, 2, 98),
        (e.XADD | END, 0, b"lines", 6, 0, rows[2]),
        (e.XCLAIM | END, 0, b"lines", b"workers", b"a", ids((5, 0), (5, 1)), 9, 2, -1),
        (e.XACK | END, 0, b"lines", b"workers", ids((5, 0), (5, 1))),
        (e.XCLAIM | END, 0, b"lines", b"workers", b"a", ids((6, 0)), 9, 1, 9, 6, 0, 3),
        (e.XACK | END, 0, b"lines", b"workers", ids((6, 0))),
    ]


def book(effects: list[Effect]) -> Ledger:
    ledger = Ledger(b"lines", b"workers")
    for effect in effects:
        ledger.take(effect)
    return ledger


def test_a_kept_promise() -> None:
    ledger = book(history())
    assert ledger.faults(LINES) == []
    assert (ledger.deliveries.total(), ledger.redeliveries, ledger.acks.total()) == (5, 2, 3)


def without(number: int) -> Callable[[list[Effect]], list[Effect]]:
    return lambda effects: effects[:number] + effects[number + 1 :]


def twice(number: int) -> Callable[[list[Effect]], list[Effect]]:
    return lambda effects: [*effects, effects[number]]


def one_more(effect: Effect) -> Callable[[list[Effect]], list[Effect]]:
    return lambda effects: [*effects, effect]


# fmt: off
@pytest.mark.parametrize(("change", "fault"), [
    (without(6), "1 lines that are not stored"),
    (without(4), None),  # delivered again later, so nothing is missing
    (without(9), "1 messages never delivered"),
    (without(10), "1 messages never acknowledged"),
    (twice(10), "1 messages acknowledged more than once"),
    (twice(6), "1 entry IDs stored twice"),
    (one_more((e.XADD, 0, b"lines", 7, 0, (b"n", b"9", b"line", b"x"))), "1 messages that are no line of the file"),
    (one_more((e.XACK, 0, b"lines", b"workers", ids((9, 9)))), "1 acknowledgements of unknown messages"),
    (one_more((e.XCLAIM, 0, b"lines", b"workers", b"a", ids((9, 9)), 9, 1, 9)), "1 deliveries of unknown messages"),
    (one_more((e.DEL, 0, (b"lines",))), "1 records that the demo never wrote"),
    (one_more((e.SET, 0, b"other", b"x", -1)), "1 records that the demo never wrote"),
    (one_more((e.XDEL, 0, b"lines", ids((5, 0)), (0, 0))), "1 records that the demo never wrote"),
])
# fmt: on
def test_a_broken_promise_is_found(
    change: Callable[[list[Effect]], list[Effect]], fault: str | None
) -> None:
    faults = book(change(history())).faults(LINES)
    assert (fault in faults) if fault else not faults


def test_a_changed_line_is_found() -> None:
    assert book(history()).faults([b"first", b"second", b"third"]) == [
        "1 messages that differ from their line"
    ]
