"""tidelog aof stats: exact counts of a known log, and counts of many keys in bounded memory."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.tools.conftest import Run, expect
from tests.tools.made import T0, Made

import tidelog
from tidelog.engine.effects import effect as e
from tidelog.tools import exits
from tidelog.tools.aof.sketch import Sketch


def test_output(run: Run, made: Made) -> None:
    done = run("aof", "stats", made.root, "--by", "hour")
    assert (done.code, done.err) == (0, "")
    expect("stats.txt", done.out, made.root)


def test_json(run: Run, made: Made) -> None:
    expect("stats.json", run("aof", "stats", made.root, "--json").out, made.root)


def test_a_part_of_the_time(run: Run, made: Made) -> None:
    done = run("aof", "stats", made.root, "--since", T0 + 2001, "--until", T0 + 3000, "--json")
    told = json.loads(done.out)
    assert (told["first_lsn"], told["last_lsn"], told["records"]) == (9, 12, 4)


def test_by_the_minute(run: Run, tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    for minute in 0, 0, 3:
        made.unit(T0 + minute * 60_000, (e.SET, 0, b"k", b"1", -1))
    told = json.loads(run("aof", "stats", made.write(), "--by", "minute", "--json").out)
    begin = T0 - T0 % 60_000
    assert [(row["from_ms"] - begin, row["records"]) for row in told["spans"]] == [
        (0, 2),
        (180_000, 1),
    ]


def test_the_largest_record_is_found_in_a_frame_of_many(run: Run, tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    small = [(e.SET, 0, b"k%d" % n, b"1", -1) for n in range(30)]
    made.unit(T0, *small[:15], (e.SET, 0, b"large", bytes(5000), -1), *small[15:])
    told = json.loads(run("aof", "stats", made.write(), "--json").out)
    assert (told["largest"][0]["lsn"], len(told["largest"])) == (16, 10)
    assert told["largest"][0]["bytes"] > 5000 > told["largest"][1]["bytes"]


def test_damage_stops_it(run: Run, made: Made) -> None:
    made.flip(220, number=0)
    assert run("aof", "stats", made.root).code == exits.DAMAGED


def test_past_damage_the_intact_frames_are_counted(run: Run, made: Made) -> None:
    made.flip(220, number=0)
    done = run("aof", "stats", made.root, "--past-damage", "--json")
    assert done.code == exits.DAMAGED and "byte " in done.err
    assert 0 < json.loads(done.out)["records"] < 13


def test_entries_of_a_group_are_those_that_its_records_name(run: Run, made: Made) -> None:
    told = json.loads(run("aof", "stats", made.root, "--json").out)
    packers = next(row for row in told["groups"] if row["group"] == "packers")
    assert (packers["records"], packers["entries"]) == (3, 3)  # two delivered, one acknowledged
    assert sum(row["entries"] for row in told["keys"]) == told["entries"]
    assert sum(row["entries"] for row in told["lives"]) == told["entries"]


def test_the_largest_keys(run: Run, tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    for _ in range(3):
        made.unit(T0, (e.SET, 0, b"often", b"1", -1))
    made.unit(T0, (e.SET, 0, b"large", bytes(5000), -1))
    told = json.loads(run("aof", "stats", made.write(), "--json").out)
    assert [row["key"] for row in told["keys"]] == ["often", "large"]
    assert [row["key"] for row in told["largest_keys"]] == ["large", "often"]


def test_an_empty_store(run: Run, tmp_path: Path) -> None:
    tidelog.open(tmp_path / "new").close()
    done = run("aof", "stats", tmp_path / "new")
    assert (done.code, "0 in 0 units" in done.out) == (0, True)


def test_the_sketch_is_exact_while_it_has_room() -> None:
    sketch: Sketch[int] = Sketch(4)
    for name in (1, 2, 2, 3):
        sketch.add(name, 10)
    assert sketch.exact
    assert [(row.name, row.most, row.error, row.nbytes) for row in sketch.top(2)] == [
        *((2, 2, 0, 20), (1, 1, 0, 10)),
    ]


def test_names_that_are_added_at_once_are_those_one_by_one() -> None:
    pick = random.Random(5)
    at_once: Sketch[int] = Sketch(1000)
    one_by_one: Sketch[int] = Sketch(1000)
    for _ in range(200):
        names = Counter(pick.choices(range(900), k=pick.randrange(1, 60)))
        nbytes, entries = pick.randrange(100), pick.randrange(2)
        at_once.add_all(names, nbytes, entries)
        for name in names.elements():
            one_by_one.add(name, nbytes, 1, entries)
    assert at_once.exact and at_once.top(1000) == one_by_one.top(1000)
    for each in at_once, one_by_one:
        assert each.nbytes > each.total > each.entries > 0
    assert (at_once.total, at_once.nbytes) == (one_by_one.total, one_by_one.nbytes)
    assert at_once.entries == one_by_one.entries


@pytest.mark.parametrize("batch", [1, 256])
def test_the_sketch_is_off_by_no_more_than_it_says(batch: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    pick = random.Random(seed)
    sketch: Sketch[int] = Sketch(100)
    true: Counter[int] = Counter()
    for _ in range(20_000 // batch):
        names = [min(int(pick.paretovariate(0.6)), 50_000) for _ in range(batch)]
        true.update(names)
        sketch.add_all(Counter(names), 1, 0) if batch > 1 else sketch.add(names[0], 1)
    top = sketch.top(100)
    assert len(top) == 100 and not sketch.exact
    assert sketch.total == sketch.nbytes == sum(true.values())
    for row in top:
        assert row.most - row.error <= true[row.name] <= row.most
    here = {row.name for row in sketch.top(200)}
    floor = max(row.error for row in sketch.top(200))
    assert all(count <= floor for name, count in true.items() if name not in here)


def test_a_leap_of_the_clock_shows(run: Run, tmp_path: Path) -> None:
    made = Made(tmp_path / "shop")
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    then = T0 + 30 * 86_400_000
    for now in (T0 + 5, *[then] * 600):
        made.unit(now, (e.SET, 0, b"k", b"v", -1))
    made.write()
    lines = [line for line in run("aof", "stats", made.root).out.splitlines() if "clock" in line]
    assert len(lines) == 2
    assert lines[0].startswith("clock        30.0 days passed before LSN 3, from 2023-11-14")
    assert (
        "stood still" in lines[1] and "600 frames, LSN 3 to 602: the clock was set back" in lines[1]
    )
    told = json.loads(run("aof", "stats", made.root, "--json").out)
    assert told["longest_pause"] == {"lsn": 3, "from_ms": T0 + 5, "to_ms": then}
    stood = {"first_lsn": 3, "last_lsn": 602, "time_ms": then, "frames": 600}
    assert told["longest_standstill"] == stood
