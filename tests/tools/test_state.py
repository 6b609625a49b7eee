"""tidelog state, and --at-lsn and --at-time of other commands: any moment has the state that was live then."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run, expect
from tests.tools.made import T0, Made
from tests.tools.queue_made import mails

import tidelog
from tidelog.testing import Clock
from tidelog.tools import exits


def test_output(run: Run, made: Made) -> None:
    expect("state.txt", run("state", made.root).out, made.root)
    expect("state-full.txt", run("state", made.root, "--full", "--at-lsn", 12).out, made.root)


def test_json(run: Run, made: Made) -> None:
    expect("state.json", run("state", made.root, "--json", "--full").out, made.root)


def test_keys(run: Run, made: Made) -> None:
    done = run("state", made.root, "--key", "s*", "--key", "jobs", "--json")
    assert [json.loads(line)["key"] for line in done.out.splitlines()] == ["jobs", "session"]


def test_a_time_is_the_last_unit_of_that_time(run: Run, made: Made) -> None:
    for moment, lsn in ((T0, 1), (T0 + 2, 3), (T0 + 2500, 11), (T0 + 10**6, 13)):
        done = run("state", made.root, "--at-time", moment)
        assert done.out.startswith(f"state at LSN {lsn}, "), moment


def test_a_moment_inside_a_unit_is_the_unit_before(run: Run, made: Made) -> None:
    assert run("state", made.root, "--at-lsn", 10).out.startswith("state at LSN 8, ")
    assert run("state", made.root, "--at-lsn", 4).out.startswith("state at LSN 3, ")


def test_a_moment_that_is_still_to_come(run: Run, made: Made) -> None:
    done = run("state", made.root, "--at-lsn", 14)
    assert (done.code, done.out) == (exits.REFUSED, "")
    assert done.err == (
        "tidelog: LSN 14 is behind the end of the log. The moments that the files reach: LSN 0 to 13 (from the "
        "beginning of the log on)\n"
    )


def test_damage_behind_the_moment_does_not_matter(run: Run, made: Made) -> None:
    made.flip(made.offsets[-1] + 3)
    made.promise(made.lsn - 1, incarnation=0xB2)
    assert run("state", made.root, "--at-lsn", 12).code == 0
    assert run("state", made.root, "--at-lsn", 13).code == exits.DAMAGED


def busy(root: Path, seed: int) -> dict[int, str]:
    """A store of three lives with checkpoints and a snapshot. Returns the digest after each unit, by LSN."""
    print(f"seed {seed}")
    pick = random.Random(seed)
    digests: dict[int, str] = {}
    for life in range(3):
        with tidelog.open(root, fsync="no", segment_bytes=4096, save=(), checkpoint_bytes=0) as db:
            note(db, digests)
            for step in range(25):
                act(db, pick)
                note(db, digests)
                if step == 12:
                    db.checkpoint()
                    if life == 1:
                        db.snapshot()
    return digests


def note(db: tidelog.Store, digests: dict[int, str]) -> None:
    digests[int(db.info()["next_lsn"]) - 1] = db.digest()


def act(db: Any, pick: random.Random) -> None:
    key = pick.choice(("a", "b"))
    if not db.exists(key):
        db.xgroup_create(key, "g", id="0", mkstream=True)
    match pick.randrange(7):
        case 0 | 1:
            db.xadd(key, {"n": pick.random()})
        case 2:
            db.xreadgroup("g", pick.choice("xy"), {key: ">"}, count=2)
        case 3:
            for entry_id, _ in db.xrange(key, count=1):
                db.xack(key, "g", entry_id)
        case 4:
            db.xtrim(key, maxlen=5, approximate=False)
        case 5:
            db.rename(key, "a" if key == "b" else "b")
        case _:
            with db.pipeline(transaction=True) as unit:
                unit.set("s", str(pick.random()))
                unit.xadd(key, {"m": 1})
                unit.execute()


@pytest.mark.parametrize("released", [False, True])
def test_the_state_at_every_unit_is_the_digest_of_then(
    run: Run, tmp_path: Path, released: bool
) -> None:
    root = tmp_path / "db"
    digests = busy(root, random.randrange(1 << 32))
    if released:
        with tidelog.open(root, save=(), checkpoint_bytes=0, retain_bytes=0) as db:
            db.checkpoint()
            db.set("k", "1")
            db.checkpoint()
            note(db, digests)
    first = min(int(path.stem) for path in (root / "aof").glob("*.aof"))
    assert (first > 1) is released
    found = refused = 0
    for lsn, digest in digests.items():
        done = run("digest", root, "--at-lsn", lsn)
        if done.code == exits.REFUSED:
            refused += 1
            assert released and "The moments that the files reach: LSN " in done.err
            continue
        assert (done.code, done.out.split()[-1]) == (0, digest), lsn
        found += 1
    assert found and bool(refused) is released


def test_queues(run: Run, tmp_path: Path) -> None:
    """The figures of `queue stats` while the store was open, and those of an earlier moment."""
    root = tmp_path / "db"
    clock = Clock()
    with mails(root, clock) as db:
        before = int(db.info()["next_lsn"]) - 1
        live = db.queue("mails").stats()
        clock.advance(2 * 86_400)  # the pause ends
        db.queue("mails").put("later")
        after = db.queue("mails").stats()
    told = {
        row["key"]: row
        for row in map(
            json.loads, run("state", root, "--at-lsn", before, "--json").out.splitlines()
        )
    }
    assert "queue" not in told["mails:holds"] and "queue" not in told["mails:dead"]
    queue = told["mails"]["queue"]
    (workers,) = queue["groups"]
    assert (live.paused, after.paused) == (1, 0)
    for figure in ("depth", "waiting", "paused"):
        assert workers[figure] == getattr(live, figure), figure
    assert workers["in_flight"] == sum(live.in_flight.values())
    assert (queue["dead"], queue["failures"]) == (live.dead, live.failures)
    text = run("state", root, "--key", "mails").out
    assert (
        f"queue, group workers: {after.depth} unfinished, {after.waiting} waiting, 1 in flight, "
        "0 paused; 3 dead, 5 failures kept" in text
    )


def test_a_queue_counts_the_jobs_of_all_priorities(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    with tidelog.open(root, clock=Clock()) as db:
        queue = db.queue("mails", retry_after=86_400)
        for priority in (0, 3, 3, 9):
            queue.put(f"job {priority}", priority=priority)
        urgent, next_one = queue.get("anna", block=0), queue.get("anna", block=0)
        assert urgent is not None and next_one is not None and urgent.value == "job 9"
        next_one.nack("busy", 3600)
        live = queue.stats()
        db.queue("news").put("only urgent", priority=5)
    told = [json.loads(line) for line in run("state", root, "--json").out.splitlines()]
    queues = {row["key"]: row["queue"]["groups"] for row in told if "queue" in row}
    assert queues.keys() == {"mails", "news:priority:5"}
    (workers,) = queues["mails"]
    assert workers["in_flight"] == sum(live.in_flight.values()) == 1
    for figure in ("depth", "waiting", "paused"):
        assert workers[figure] == getattr(live, figure), figure


def test_other_commands_take_the_moment(run: Run, made: Made) -> None:
    info = json.loads(run("info", made.root, "--at-lsn", 3, "--json").out)
    assert [row["key"] for row in info["streams"]] == ["orders"]
    done = run("aof", "export", "--resp", made.root, "--at-lsn", 3, "--json")
    assert "XGROUP" not in done.out and done.out.count("XADD") == 2
    assert json.loads(done.err)["checkpoint_lsn"] == 3
    assert (
        run("aof", "export", "--resp", made.root, "--at-lsn", 3, "--to-lsn", 3).code == exits.USAGE
    )


def test_a_snapshot_has_one_moment(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        db.xadd("s", {"n": 1})
        made = db.snapshot()
    assert run("state", made.path).out.startswith("state at LSN 2, ")
    assert run("state", made.path, "--at-lsn", 2).code == 0
    for lsn in 1, 3:
        assert run("state", made.path, "--at-lsn", lsn).code == exits.REFUSED


def test_nothing_is_written(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    busy(root, 1)
    before = files_of(root)
    for lsn in 5, 30, 60:
        assert run("state", root, "--at-lsn", lsn, "--full").code == 0
    assert files_of(root) == before


def files_of(root: Path) -> dict[Path, bytes]:
    """All files but LMDB's table of readers."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "lock.mdb")
    return {path: path.read_bytes() for path in files}


def test_delayed_jobs_of_a_queue(run: Run, tmp_path: Path) -> None:
    """They are counted with the queue, and their stream is no queue."""
    root = tmp_path / "data"
    with tidelog.open(root) as db:
        queue = db.queue("mails")
        queue.put("now")
        queue.put_many(["a", "b"], delay=3600)
    lines = run("state", root, "--json").out.splitlines()
    told = {row["key"]: row for row in map(json.loads, lines)}
    assert told["mails"]["queue"]["scheduled"] == 2
    assert "queue" not in told["mails:later"]
    assert "2 scheduled" in run("state", root).out


def test_due_times(run: Run, tmp_path: Path) -> None:
    """The delivery times of delayed jobs and schedules are in the past by a constant."""
    root = tmp_path / "data"
    with tidelog.open(root, clock=Clock()) as db:
        db.queue("mails").put("a", delay=3 * 3600)
        db.schedule("nightly", every=7200, queue="mails", value=1)
    text = run("state", root, "--full").out
    assert re.search(r"  pending \S+: due in 3h00m, 2026-01-01T03:00:00.000Z\n", text), text
    assert re.search(r"  pending \S+: due in 2h00m, 2026-01-01T02:00:00.000Z\n", text), text
    told = [json.loads(line) for line in run("state", root, "--full", "--json").out.splitlines()]
    pending = [row["groups"][0]["pending_entries"][0] for row in told if row["groups"]]
    assert [row["due_ms"] for row in pending] == [1767236400000, 1767232800000]
    assert all("delivered_ms" not in row for row in pending)
