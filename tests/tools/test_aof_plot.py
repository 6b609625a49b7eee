"""tidelog aof plot: pictures in three formats, the figures in them, and the errors in one line."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.made import T0, Made

import tidelog
from tidelog.aof.frame import Frame
from tidelog.engine.effects import effect as e
from tidelog.testing import Clock
from tidelog.tools import exits, installed
from tidelog.tools.aof.series import SPANS_MAX, Sample, Series, base_for, samples
from tidelog.tools.logfiles import LogFiles

BEGINS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", BEGINS)
def test_each_format(run: Run, made: Made, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"x{suffix}"
    done = run("aof", "plot", made.root, "-o", out)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"{out}: 13 records from 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:24.000Z, "
        "251 points of 16 ms each, 2 groups\n"
    )
    assert out.read_bytes().startswith(BEGINS[suffix])


def test_the_same_log_gives_the_same_picture(run: Run, made: Made, tmp_path: Path) -> None:
    pictures = []
    for name in "a.svg", "b.svg":
        assert run("aof", "plot", made.root, "-o", tmp_path / name).code == 0
        pictures.append((tmp_path / name).read_text())
    assert pictures[0] == pictures[1]
    for words in ("entries added/s", "not synced", "lag", "pending", "orders packers", "jobs g"):
        assert words in pictures[0]


def test_filters(run: Run, made: Made, tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    args = ("--since", T0 + 3, "--until", T0 + 3000, "--key", "o*", "--group", "pack*")
    done = run("aof", "plot", made.root, "-o", out, *args)
    assert "9 records from " in done.out and done.out.endswith(", 1 groups\n")
    assert "orders packers" in out.read_text() and "jobs g" not in out.read_text()


def test_a_file_that_is_there_needs_force(run: Run, made: Made, tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    out.write_text("mine")
    done = run("aof", "plot", made.root, "-o", out)
    assert (done.code, out.read_text()) == (exits.SYSTEM, "mine")
    assert run("aof", "plot", made.root, "-o", out, "--force").code == 0
    assert out.read_text() != "mine" and [*tmp_path.glob("*.new")] == []


def test_errors(run: Run, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("aof", "plot", made.root, "-o", tmp_path / "x.gif").code == exits.USAGE
    done = run("aof", "plot", made.root, "-o", tmp_path / "x.svg", "--since", T0 + 10**9)
    assert done.code == exits.USAGE and "no records of that time" in done.err
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    done = run("aof", "plot", made.root, "-o", tmp_path / "x.svg")
    assert (done.code, done.err) == (
        exits.SYSTEM,
        "tidelog: tidelog aof plot needs matplotlib; install with: pip install 'tidelog[plot]'\n",
    )
    assert [*tmp_path.glob("x.*")] == []


def test_damage(run: Run, made: Made, tmp_path: Path) -> None:
    made.flip(220, number=0)
    out = tmp_path / "x.svg"
    assert run("aof", "plot", made.root, "-o", out).code == exits.DAMAGED and not out.exists()
    done = run("aof", "plot", made.root, "-o", out, "--past-damage")
    assert (done.code, out.exists()) == (exits.DAMAGED, True)


def test_a_segment_alone_has_no_state(run: Run, made: Made, tmp_path: Path) -> None:
    aside = tmp_path / "aside.aof"
    shutil.copy(made.path(1), aside)
    done = run("aof", "plot", aside, "-o", tmp_path / "x.svg")
    assert done.code == 0 and "so lag and pending entries are not drawn" in done.err


def test_spans_are_doubled_until_they_fit() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    pick = random.Random(seed)
    series, now, total = Series(), T0, 0
    for lsn in range(1, 5001):
        now += pick.randrange(1, 10_000)
        entries = pick.randrange(3)
        total += entries
        series.take(Frame(0, lsn, 1, now, lsn - 1 - lsn % 7, 0, b"12"), entries)
    series.fit()
    assert SPANS_MAX // 2 <= len(series.numbers()) <= SPANS_MAX
    spans = series.spans.values()
    assert sum(span.records for span in spans) == 5000
    assert sum(span.entries for span in spans) == total
    assert max(span.exposed for span in spans) == 6
    last = max(series.spans)
    assert last * series.width <= now < (last + 1) * series.width


def test_lag_and_pending_are_those_of_the_live_store(tmp_path: Path) -> None:
    """At the end of each span, against XINFO of then; also from a checkpoint in the middle."""
    root, clock = tmp_path / "db", Clock()
    live: dict[int, Sample] = {}
    with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0, clock=clock) as db:
        db.xgroup_create("s", "g", id="0", mkstream=True)
        for step in range(30):
            clock.advance(1)
            db.xadd("s", {"n": step})
            if step % 3:
                db.xreadgroup("g", "w", {"s": ">"}, count=2)
            if step % 5 == 4:
                pending = db.xpending_range("s", "g", "-", "+", 1)
                db.xack("s", "g", *(row["message_id"] for row in pending))
            (told,) = db.xinfo_groups("s")
            live[clock.time_ns() // 1_000_000_000] = Sample(told["lag"], told["pending"])
            if step == 15:
                db.checkpoint()
    files = LogFiles(root)
    name = (0, b"s", b"g")
    base = base_for(files, 0)
    assert base is not None and base.folder is None
    found = samples(files, base, 1000, max(live), [name, (0, b"s", b"none")], lambda nbytes: None)
    assert {at: found[name][at] for at in live} == live
    assert set(found[0, b"s", b"none"].values()) == {Sample(None, None)}
    later = base_for(files, sorted(live)[20] * 1000)
    assert later is not None and later.folder is not None
    found = samples(files, later, 1000, max(live), [name], lambda nbytes: None)
    assert found[name] == {at: live[at] for at in found[name]} and len(found[name]) >= 10


def test_a_group_that_is_made_anew(run: Run, tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    made.unit(T0, (e.XADD_NODE, 0, b"s", 1, 0, (b"n", b"1")))
    made.unit(T0 + 1, (e.XGROUP_CREATE, 0, b"s", b"g", 0, 0, -1))
    made.unit(T0 + 5, (e.XGROUP_DESTROY, 0, b"s", b"g"))
    files = LogFiles(made.write())
    base = base_for(files, 0)
    assert base is not None
    found = samples(files, base, 1, T0 + 5, [(0, b"s", b"g")], lambda nbytes: None)
    assert [*found[0, b"s", b"g"].values()] == [
        Sample(None, None),
        Sample(1, 0),
        Sample(None, None),
    ]


def test_delayed_jobs_and_schedules_are_not_drawn_as_pending(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        mails = db.queue("mails")
        for number in range(9):
            mails.put(number, delay=3600, priority=number % 3)
        db.schedule("beat", every=60, queue="mails")
        mails.put("now")
        assert mails.get("w", block=0) is not None
    out = tmp_path / "x.svg"
    done = run("aof", "plot", tmp_path / "db", "-o", out)
    assert done.out.endswith(", 1 groups\n"), done
    assert "mails workers" in out.read_text() and " due<" not in out.read_text()
