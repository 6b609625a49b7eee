"""The order that the recorder notes for LMDB's commits is the order of the calls that the installed LMDB makes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.snapshot.lmdb_faults.faults import run_with_fault

CHILD = Path(__file__).with_name("commits_child.py")
PAGE = 4096
META = {0, 1}


# The last one has more changed pages than LMDB keeps in memory, so it writes some of them before the commit.
@pytest.mark.parametrize(
    ("commits", "rows"),
    [
        (8, 1000),
        pytest.param(200, 1000, marks=pytest.mark.slow),
        pytest.param(4, 140_000, marks=pytest.mark.soak),
    ],
)
def test_the_noted_order_is_that_of_the_calls(commits: int, rows: int, tmp_path: Path) -> None:
    argv: list[str | Path] = [sys.executable, CHILD, tmp_path, str(commits), str(rows)]
    ended = run_with_fault(argv, paths=("data.mdb",))
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert len(lines) == commits
    assert lines[0] == [[], []]  # it changed nothing, so LMDB wrote and synced nothing
    lines = [each for each in lines if each[1]]

    # What the process called: for each commit (pages before its fdatasync, pages after it).
    called: list[tuple[set[int], set[int]]] = []
    pages: set[int] = set()
    for call in ended.calls:
        if call.operation == "fdatasync":
            called.append((pages, set()))
            pages = set()
        elif call.operation.startswith(("pwrite", "write")):
            touched = set(range(call.offset // PAGE, -(-(call.offset + call.length) // PAGE)))
            if touched <= META and called and not called[-1][1]:
                called[-1][1].update(touched)
            else:
                pages |= touched
    assert pages == set()
    assert len(called) == len(lines)
    same = 0
    for (before, after), (differ, (data, sync, meta, own)) in zip(called, lines, strict=True):
        assert (sync, own) == ("sync", "own")
        assert set(meta) == after
        assert not before & META
        # All pages that the calls wrote, but those whose content was written once more.
        assert set(data) == before & set(differ)
        assert set(differ) <= before | after
        same += len(before - set(data))
    assert same < 0.05 * sum(len(before) for before, _ in called)
