"""tidelog why: the life of every message of random histories, against a ledger that knows nothing of the log."""

from __future__ import annotations

import json
import random
import shutil
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run, expect
from tests.tools.made import T0, Made

import tidelog
from tidelog.testing import Clock
from tidelog.tools import exits
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.why import story

RARE = ("XAUTOCLAIM", "IDMP", "XACKDEL", "XDELEX", "MINID", "ACKED", "MOVE", "FLUSH", "EXPIRE")
Told = tuple[str, str, int]  # kind, a part of the text, LSN of the unit's end


def added(db: tidelog.Store, fields: dict[str, str]) -> str:
    entry = db.xadd("s", fields)
    assert isinstance(entry, bytes)
    return entry.decode()


def test_output(run: Run, made: Made) -> None:
    expect("why.txt", run("why", made.root, "orders", f"{T0 + 1}-0").out, made.root)
    expect("why-trimmed.txt", run("why", made.root, "lines", f"{T0 + 3000}-0").out, made.root)


def test_json(run: Run, made: Made) -> None:
    expect("why.json", run("why", made.root, "orders", f"{T0 + 1}-0", "--json").out, made.root)


def test_an_id_that_nothing_knows(run: Run, made: Made) -> None:
    done = run("why", made.root, "orders", f"{T0 + 3}-0")
    assert (done.code, done.out) == (exits.NOT_A_STORE, "")
    assert done.err == (
        f"tidelog: the whole log knows no entry {T0 + 3}-0 of 'orders'; the nearest IDs there now: "
        f"{T0 + 1}-0, {T0 + 2}-0\n"
    )


def test_an_id_that_is_none(run: Run, made: Made) -> None:
    assert run("why", made.root, "orders", "yesterday").code == exits.USAGE


@pytest.mark.parametrize("as_json", [False, True])
def test_a_damaged_log_is_told_up_to_the_damage(run: Run, tmp_path: Path, as_json: bool) -> None:
    root = tmp_path / "db"
    with tidelog.open(root, save=(), checkpoint_bytes=0) as db:
        entry = added(db, {"n": "1"})
        db.xgroup_create("s", "g", id="0")
        db.xreadgroup("g", "anna", {"s": ">"})
        behind = int(db.info()["next_lsn"])
        for n in range(20):
            db.xadd("s", {"n": n, "pad": f"mark {n}"})
        later = added(db, {"n": "later"})
        db.xack("s", "g", entry)
    shutil.rmtree(root / "checkpoint", ignore_errors=True)  # made by close
    (path,) = (root / "aof").glob("*.aof")
    data = bytearray(path.read_bytes())
    data[data.index(b"mark 5")] ^= 1
    path.write_bytes(data)
    flags = ["--json"] if as_json else []
    done = run("why", root, "s", entry, *flags)
    assert done.code == exits.DAMAGED
    lines = done.out.splitlines()
    assert len(lines) == 2 and "added" in lines[0] and "delivered to anna" in lines[1]
    assert f"{path.name}, " in done.err and f"LSN {behind + 5}" in done.err
    assert done.err.count("\n") == 1
    done = run("why", root, "s", later, *flags)
    assert (done.code, done.out) == (exits.DAMAGED, "") and f"LSN {behind + 5}" in done.err


def test_a_job_in_the_words_of_the_queue(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    with tidelog.open(root) as db:
        queue = db.queue("mails", max_deliveries=2)
        other = db.queue("sent")
        first = queue.put({"to": "anna"})
        for _ in range(2):
            job = queue.get("w", block=60)
            assert job is not None and job.id == first
            job.nack(RuntimeError("no such address"), delay=0)
        second = queue.put({"to": "ben"})
        job = queue.get("w", block=60)
        assert job is not None and job.id == second
        job.done_and(other.new({"mail": 2}))
        assert queue.dead.redrive() == 1
        new = queue.peek()[0].id
    kinds = [
        json.loads(line) for line in run("why", root, "mails", first, "--json").out.splitlines()
    ]
    assert [row["event"] for row in kinds if row["event"] != "paused"] == [
        *(
            "added",
            "delivered",
            "failed",
            "nacked",
            "delivered",
            "failed",
            "dead",
            "acked",
            "redriven",
        ),
    ]
    text = run("why", root, "mails", first).out
    assert "put by XADD" in text and "RuntimeError: no such address" in text
    assert f"redriven as {new}" in text
    assert "XADD sent" in run("why", root, "mails", second).out
    assert f"redriven from the dead job {first}" in run("why", root, "mails", new).out


def test_the_retained_log_before_the_checkpoint_is_told(run: Run, tmp_path: Path) -> None:
    """The log begins before the only base, and no state of that time is kept: the records alone tell."""
    root = tmp_path / "db"
    with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0, segment_bytes=4096) as db:
        fill(db, 100)
    with tidelog.open(
        root, fsync="no", save=(), checkpoint_bytes=0, segment_bytes=4096, retain_bytes=20_000
    ) as db:
        db.xgroup_create("s", "g", id="$", mkstream=True)
        queue = db.queue("mails")
        lost = queue.put("lost")
        job = queue.get("w", block=0)
        assert job is not None
        job.nack(RuntimeError("no address"), delay=0)
        there = added(db, {"n": "there"})
        gone = added(db, {"n": "gone"})
        db.xreadgroup("g", "anna", {"s": ">"})
        db.xdel("s", gone)
        fill(db, 20)
        db.checkpoint()
        db.xack("s", "g", there)
    assert min(int(path.stem) for path in (root / "aof").glob("*.aof")) > 1
    assert kinds(run, root, "s", there) == ["added", "delivered", "present", "pending", "acked"]
    assert kinds(run, root, "s", gone) == ["added", "delivered", "deleted", "absent", "pending"]
    told = kinds(run, root, "mails", lost)
    assert told[:5] == ["added", "delivered", "failed", "paused", "nacked"]
    assert "is there in the checkpoint\n" in run("why", root, "s", there).out


def test_a_snapshot_older_than_the_log(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    options: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}
    with tidelog.open(root, segment_bytes=4096, retain_bytes=0, **options) as db:
        stays = added(db, {"n": "stays"})
        goes = added(db, {"n": "goes"})
        db.xgroup_create("s", "g", id="0")
        db.xreadgroup("g", "anna", {"s": ">"}, count=1)
        made = db.snapshot()
        db.xdel("s", goes)
        fill(db, 200)
    aside = tmp_path / "aside"
    shutil.move(made.path, aside)  # a kept snapshot would keep the log behind it
    with tidelog.open(root, segment_bytes=4096, retain_bytes=0, **options) as db:
        db.checkpoint()
        fill(db, 100)
        db.checkpoint()
    shutil.move(aside, made.path)
    assert min(int(path.stem) for path in (root / "aof").glob("*.aof")) > made.lsn + 1
    assert kinds(run, root, "s", stays) == ["present", "pending", "present", "pending"]
    assert kinds(run, root, "s", goes) == ["present", "gone"]
    text = run("why", root, "s", goes).out
    assert f"is there in snapshot {made.lsn:020d}; the log behind it is gone" in text
    assert "is not there in the checkpoint: trimmed, deleted or moved before" in text


def fill(db: Any, count: int) -> None:
    for n in range(count):
        db.xadd("fill", {"n": n, "text": "x" * 100})


def kinds(run: Run, root: Path, key: str, entry: str) -> list[str]:
    done = run("why", root, key, entry, "--json")
    assert done.code == 0, done.err
    return [json.loads(line)["event"] for line in done.out.splitlines()]


def test_a_failure_in_the_millisecond_of_the_put(run: Run, tmp_path: Path) -> None:
    """The record of the failure has the ID of the job then, in another stream."""
    root = tmp_path / "db"
    with tidelog.open(root, clock=Clock()) as db:
        queue = db.queue("mails", max_deliveries=1)
        entry = queue.put("x")
        job = queue.get("w", block=0)
        assert job is not None
        job.nack(RuntimeError("no address"))
    assert kinds(run, root, "mails", entry) == ["added", "delivered", "failed", "dead", "acked"]


def test_jobs_that_die_inside_a_fetch(run: Run, tmp_path: Path) -> None:
    """A fetch writes the failures and the dead jobs that it finds as batches."""
    root, clock = tmp_path / "db", Clock()
    with tidelog.open(root, clock=clock, fsync="no", save=()) as db:
        queue = db.queue("mails", max_deliveries=1, retry_after=10)
        late = queue.put("late", ttl=5)
        queue.put_many([{"n": n} for n in range(300)], ttl=5)
        last = queue.peek(1000)[-1].id
        dropped = queue.put("dropped")
        clock.advance(6)
        job = queue.get("w", block=0)
        assert job is not None and job.id == dropped
        del job
        clock.advance(20)
        assert queue.get("w", block=0) is None
        assert queue.dead.count() == 302
    assert kinds(run, root, "mails", late) == ["added", "delivered", "dead", "acked"]
    assert kinds(run, root, "mails", last) == ["added", "delivered", "dead", "acked"]
    assert "dead in group workers as" in (text := run("why", root, "mails", last).out)
    assert ": expired" in text
    assert kinds(run, root, "mails", dropped) == ["added", "delivered", "failed", "dead", "acked"]
    text = run("why", root, "mails", dropped).out
    assert "never finished" in text and "at worker w:" in text


# --- the ledger


class Stream:
    """A stream as the commands' replies tell of it: its entries, its pending entries, and what happened to each ID."""

    def __init__(self, places: list[str]) -> None:
        self.places = places
        # the LSN at which it was no longer there, of each place but the last
        self.left: list[int] = []
        self.ids: list[str] = []
        self.pending: dict[str, dict[str, tuple[str, int]]] = {}
        self.told: dict[str, list[Told]] = {}
        self.begun: dict[str, int] = {}  # how many places came before the entry did

    def was_at(self, key: str, entry: str, lsn: int = 0) -> bool:
        """Whether the stream was at the key since it had the entry, behind an LSN."""
        if entry not in self.told:
            return False
        left = [*self.left, 1 << 63]
        return any(
            self.places[at] == key and left[at] > lsn
            for at in range(self.begun[entry], len(self.places))
        )


class Ledger:
    """Random commands to a store, and what they did according to their replies."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.here: dict[str, Stream] = {}
        self.all: list[Stream] = []
        self.next = 1
        self.lsn = 0
        self.waiting: list[tuple[Stream, str, str, str]] = []
        self.clock = Clock()
        self.commands: set[str] = set()  # that did something to an entry

    def tell(self, stream: Stream, entry: str, kind: str, text: str = "") -> None:
        self.waiting.append((stream, entry, kind, text))

    def settle(self, db: Any) -> None:
        """The LSN is known when the command has run."""
        self.lsn = int(db.info()["next_lsn"]) - 1
        for stream, entry, kind, text in self.waiting:
            stream.told.setdefault(entry, []).append((kind, text, self.lsn))
            stream.begun.setdefault(entry, len(stream.places) - 1)
        self.waiting.clear()
        for stream in self.all:
            stream.left += [self.lsn] * (len(stream.places) - 1 - len(stream.left))

    def step(self, db: Any) -> None:
        key = self.pick.choice("ab")
        if key not in self.here:
            db.xgroup_create(key, "g", id="0", mkstream=True)
            db.xgroup_create(key, "h", id="0")
            stream = Stream([key])
            stream.pending = {"g": {}, "h": {}}
            self.here[key] = stream
            self.all.append(stream)
        self.act(db, key, self.here[key])
        self.settle(db)

    def concerned(self, stream: Stream) -> set[str]:
        return set(stream.ids).union(*stream.pending.values())

    def act(self, db: Any, key: str, stream: Stream) -> None:
        pick = self.pick
        group = pick.choice("gh")
        held = stream.pending[group]
        consumer = pick.choice("xyz")
        some = pick.choice(sorted(held)) if held else None
        if pick.random() < 0.3:
            self.act_rarely(db, key, stream, group, consumer, some)
            return
        match pick.randrange(22):
            case 0 | 1 | 2 | 3 | 4:
                entry = f"{self.next}-1"
                self.next += 1
                db.xadd(key, {"n": pick.random()}, id=entry)
                stream.ids.append(entry)
                self.tell(stream, entry, "added")
            case 5 | 6:
                first = self.next
                count = pick.randrange(1, 150)
                made = db.xadd_many(key, [{"n": n} for n in range(count)])
                self.next = max(self.next, int(made[-1].partition(b"-")[0]) + 1)
                assert first <= self.next
                for entry in made:
                    stream.ids.append(entry.decode())
                    self.tell(stream, entry.decode(), "added")
            case 7 | 8 | 9 | 10:
                for _, entries in db.xreadgroup(
                    group, consumer, {key: ">"}, count=pick.randrange(1, 40)
                ):
                    for entry, _ in entries:
                        held[entry.decode()] = consumer, 1
                        text = f"to {consumer} of group {group}, delivery 1"
                        self.tell(stream, entry.decode(), "delivered", text)
            case 11 | 12 if some:
                assert db.xack(key, group, some) == 1
                self.tell(stream, some, "acked", f"group {group}")
                del held[some]
            case 13 if some:
                owner, count = held[some]
                if db.xclaim(key, group, consumer, 0, [some], justid=False):
                    kind = "delivered" if not owner else "claimed"
                    held[some] = consumer, count + 1
                    text = f"to {consumer} of group {group}, delivery {count + 1}"
                    self.tell(stream, some, kind, text)
                else:  # the entry is gone, so XCLAIM removes it
                    self.tell(stream, some, "acked", f"group {group}")
                    del held[some]
            case 14 if some:
                db.execute_command("XNACK", key, group, "FAIL", "IDS", 1, some)
                held[some] = "", held[some][1]
                self.tell(stream, some, "nacked", f"group {group}")
            case 15 if stream.ids:
                entry = pick.choice(stream.ids)
                assert db.xdel(key, entry) == 1
                stream.ids.remove(entry)
                self.tell(stream, entry, "deleted")
            case 16:
                length = pick.randrange(60)
                db.xtrim(key, maxlen=length, approximate=False)
                gone = stream.ids[: max(0, len(stream.ids) - length)]
                del stream.ids[: len(gone)]
                for entry in gone:
                    self.tell(stream, entry, "trimmed")
            case 17:
                target = "b" if key == "a" else "a"
                self.overwrite(target)
                db.rename(key, target)
                self.here[target] = self.here.pop(key)
                stream.places.append(target)
                for entry in self.concerned(stream):
                    self.tell(stream, entry, "moved", f"renamed to {target}")
            case 18:
                target = "b" if key == "a" else "a"
                self.overwrite(target)
                db.copy(key, target, replace=True)
                self.copied(stream, target)
            case 19 if pick.random() < 0.3:
                self.overwrite(key)
                db.delete(key)
            case 20 if pick.random() < 0.2:
                db.swapdb(0, 5)
                db.swapdb(5, 0)
                for name, other in self.here.items():
                    for entry in self.concerned(other):
                        self.tell(other, entry, "moved", "to database 5")
                        self.tell(other, entry, "moved", "to database 0")
                    other.places.append(name)
            case 21 if held:
                db.xgroup_delconsumer(key, group, consumer)
                for entry, (owner, _) in list(held.items()):
                    if owner == consumer:
                        self.tell(stream, entry, "dropped", f"consumer {consumer}")
                        del held[entry]
            case _:
                pass

    def act_rarely(
        self, db: Any, key: str, stream: Stream, group: str, consumer: str, some: str | None
    ) -> None:
        """The commands that are not in `act`."""
        pick, held = self.pick, stream.pending[group]
        before = len(self.waiting)
        verb = pick.choice(RARE)
        match verb:
            case "XAUTOCLAIM":
                reply = db.xautoclaim(key, group, consumer, 0, count=pick.randrange(1, 60))
                for entry in (entry.decode() for entry, _ in reply[1]):
                    owner, count = held[entry]
                    held[entry] = consumer, count + 1
                    text = f"to {consumer} of group {group}, delivery {count + 1}"
                    self.tell(stream, entry, "claimed" if owner else "delivered", text)
                for entry in (entry.decode() for entry in reply[2]):
                    self.tell(stream, entry, "acked", f"group {group}")
                    del held[entry]
            case "IDMP":
                iid = b"%d" % pick.randrange(1 << 40)
                first, again = (db.xadd(key, {"n": 1}, idmp=("p", iid)) for _ in range(2))
                assert first == again
                entry = first.decode()
                self.next = max(self.next, int(entry.partition("-")[0]) + 1)
                stream.ids.append(entry)
                self.tell(stream, entry, "added", f"idempotent for producer p, ID {iid.decode()}")
            case "XACKDEL" if some:
                policy = pick.choice(("KEEPREF", "DELREF", "ACKED"))
                (done,) = db.xackdel(key, group, some, ref_policy=policy)
                there = some in stream.ids
                gone = there and done == 1
                text = f"acknowledged and deleted in group {group}" if gone else f"in group {group}"
                self.tell(stream, some, "acked", text)
                del held[some]
                if gone:
                    stream.ids.remove(some)
                if policy == "DELREF":
                    self.unheld(stream, some)
            case "XDELEX" if stream.ids:
                policy = pick.choice(("KEEPREF", "DELREF", "ACKED"))
                entry = pick.choice(stream.ids)
                if db.xdelex(key, entry, ref_policy=policy) == [1]:
                    stream.ids.remove(entry)
                    self.tell(stream, entry, "deleted")
                    if policy == "DELREF":
                        self.unheld(stream, entry)
            case "MINID" if stream.ids:
                at = pick.randrange(len(stream.ids))
                assert db.xtrim(key, minid=stream.ids[at], approximate=False) == at
                for entry in stream.ids[:at]:
                    self.tell(stream, entry, "trimmed")
                del stream.ids[:at]
            case "ACKED" if stream.ids:
                # it takes only what both groups have acknowledged
                for name, its in stream.pending.items():
                    for entry in stream.ids[:10]:
                        if its.pop(entry, None) is not None:
                            assert db.xack(key, name, entry) == 1
                            self.tell(stream, entry, "acked", f"group {name}")
                db.xtrim(key, maxlen=pick.randrange(60), approximate=False, ref_policy="ACKED")
                left = [entry.decode() for entry, _ in db.xrange(key)]
                for entry in set(stream.ids) - set(left):
                    self.tell(stream, entry, "trimmed")
                    self.commands.add(verb)
                stream.ids = left
                return
            case "MOVE":
                # to the other database and back; the others are there while it is here
                assert db.move(key, 5)
                db.swapdb(0, 5)
                assert db.move(key, 5)
                db.swapdb(0, 5)
                for name, other in self.here.items():
                    for entry in self.concerned(other):
                        for to in (5, 0, 5, 0) if name == key else (5, 0):
                            self.tell(other, entry, "moved", f"to database {to}")
                    other.places.append(name)
            case "FLUSH" if pick.random() < 0.3:
                (db.flushdb if pick.random() < 0.5 else db.flushall)()
                for name in list(self.here):
                    self.overwrite(name)
            case "EXPIRE" if pick.random() < 0.5:
                assert db.pexpire(key, 1000)
                self.clock.advance(2)
                assert db.exists(key) == 0
                self.overwrite(key)
            case _:
                pass
        if len(self.waiting) > before:
            self.commands.add(verb)

    def unheld(self, stream: Stream, entry: str) -> None:
        """No group has the entry pending any more."""
        for name, held in stream.pending.items():
            if held.pop(entry, None) is not None:
                self.tell(stream, entry, "acked", f"group {name}")

    def overwrite(self, key: str) -> None:
        stream = self.here.pop(key, None)
        if stream is not None:
            for entry in self.concerned(stream):
                self.tell(stream, entry, "gone")

    def copied(self, source: Stream, key: str) -> None:
        stream = self.here[key] = Stream([key])
        self.all.append(stream)
        stream.ids = list(source.ids)
        stream.pending = {name: dict(held) for name, held in source.pending.items()}
        for entry in self.concerned(source):
            stream.told[entry] = list(source.told.get(entry, []))
            self.tell(stream, entry, "copied")


def history(root: Path, seed: int, *, release: bool) -> Ledger:
    """A store of three lives, and its ledger."""
    ledger = Ledger(seed)
    for life in range(3):
        retain = 0 if release and life else 1 << 40
        with tidelog.open(
            root,
            fsync="no",
            save=(),
            checkpoint_bytes=0,
            retain_bytes=retain,
            clock=ledger.clock,
        ) as db:
            for step in range(40):
                ledger.step(db)
                if step == 10:
                    db.checkpoint()
    return ledger


def wrong(root: Path, ledger: Ledger, most: int | None = None) -> tuple[int, list[str]]:
    """(number of messages, what `why` tells otherwise than the ledger) of all messages or `most` of them."""
    files = LogFiles(root)
    messages = sorted({entry for stream in ledger.all for entry in stream.told})
    if most is not None:
        messages = ledger.pick.sample(messages, min(most, len(messages)))
    differences = []
    begun = story(files, b"a", 0).base.start.lsn
    for entry in messages:
        ms, _, seq = entry.partition("-")
        keys = [
            key
            for key in "ab"
            if any(stream.was_at(key, entry, begun) for stream in ledger.all)
            or not any(
                stream.was_at(other, entry, begun) for other in "ab" for stream in ledger.all
            )
        ]
        key = ledger.pick.choice(keys)
        found = story(files, key.encode(), int(ms) << 64 | int(seq))
        assert found.base.start.lsn == begun
        expected = [
            [told for told in stream.told[entry] if told[2] > begun]
            for stream in ledger.all
            if stream.was_at(key, entry, begun)
        ]
        told = [
            [(event.kind, event.text, event.lsn) for event in life.story() if event.lsn > begun]
            for life in found.lives
        ]
        if not same([each for each in expected if each], [each for each in told if each]):
            differences.append(f"{key} {entry}: expected {expected}, told {told}")
    return len(messages), differences


def same(expected: list[list[Told]], told: list[list[Told]]) -> bool:
    if len(expected) != len(told):
        return False
    left = list(told)
    for life in expected:
        hit = next((each for each in left if agrees(life, each)), None)
        if hit is None:
            return False
        left.remove(hit)
    return True


def agrees(expected: list[Told], told: list[Told]) -> bool:
    """Whether each step of the ledger is told, one after the other; a step may end in several groups, in any order."""
    left = list(told)
    before = 0
    for lsn, step in groupby(expected, lambda each: each[2]):
        wanted = list(step)
        found, left = left[: len(wanted)], left[len(wanted) :]
        for kind, text, _ in wanted:
            hit = next(
                (e for e in found if e[0] == kind and text in e[1] and before < e[2] <= lsn), None
            )
            if hit is None:
                return False
            found.remove(hit)
        before = lsn
    return not left


@pytest.mark.parametrize("release", [False, True])
def test_a_short_history_against_the_ledger(tmp_path: Path, release: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    root = tmp_path / "db"
    ledger = history(root, seed, release=release)
    count, differences = wrong(root, ledger, 30)
    assert count and not differences, differences[:3]


@pytest.mark.slow
def test_two_thousand_messages_against_the_ledger(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    total = number = 0
    commands: set[str] = set()
    while total < 2000 or (number < 40 and len(commands) < len(RARE)):
        root = tmp_path / str(number)
        ledger = history(root, seed + number, release=number % 3 == 0)
        count, differences = wrong(root, ledger)
        assert not differences, (number, differences[:3])
        commands |= ledger.commands
        total += count
        number += 1
    assert commands == set(RARE)


def test_renewals_of_a_lease_are_one_line(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        db.xgroup_create("s", "g", id="0", mkstream=True)
        entry = added(db, {"n": "1"})
        db.xreadgroup("g", "anna", {"s": ">"})
        for _ in range(452):
            db.xclaim("s", "g", "anna", 0, [entry], justid=True)
        db.xclaim("s", "g", "ben", 0, [entry])
        db.xclaim("s", "g", "ben", 0, [entry], justid=True)
    assert kinds(run, tmp_path / "db", "s", entry) == [
        *("added", "delivered", "renewed", "claimed", "renewed")
    ]
    out = run("why", tmp_path / "db", "s", entry).out
    assert "lease renewed by anna of group g, 452 times, last at 20" in out
    assert out.splitlines()[-1].endswith("lease renewed by ben of group g")


def test_an_entry_that_restore_brought(run: Run, tmp_path: Path) -> None:
    """It has a life before and behind, at each key that holds it."""
    root = tmp_path / "db"
    with tidelog.open(root) as db:
        entry = added(db, {"n": "1"})
        payload = db.dump("s")
        assert payload is not None
        db.delete("s")
        db.restore("s", 0, payload)
        db.restore("t", 0, payload)
        db.set("t", "text")
    for key, events in (("s", ["added", "gone", "restored"]), ("t", ["restored", "gone"])):
        out = run("why", root, key, entry, "--json").out
        told = [json.loads(line) for line in out.splitlines()]
        assert [row["event"] for row in told] == events
        assert "RESTORE" in told[events.index("restored")]["text"]
