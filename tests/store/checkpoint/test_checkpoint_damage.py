"""Files that were damaged, exchanged or lost between two opens: right answers, or a refusal that says what and where.

Never wrong bytes, never a store that starts empty or shorter.
"""

from __future__ import annotations

import pickle
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from tests.rounds import some_and_all
from tests.store.checkpoint import checkpoint_damage_child as child

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.engine import rowkeys
from tidelog.snapshot.scrub import HARMLESS, verify_snapshot, verify_store
from tidelog.store.errors import TidelogError

DISK = RealDisk()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("damage")
    child.fill(directory / "store")
    (directory / "answers").write_bytes(pickle.dumps(child.answers(directory / "store")))
    return directory


@pytest.fixture
def made(template: Path, tmp_path: Path) -> Path:
    """A store whose log begins behind its checkpoint, and right answers beside it."""
    shutil.copytree(template, tmp_path / "made")
    return tmp_path / "made"


def data_of(made: Path) -> Path:
    return made / "store" / "checkpoint" / "data.mdb"


# --- bits


def flipped(made: Path, first: int, last: int) -> tuple[Counter[str], list[str]]:
    """How many seeds ended how, and what was wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    data = data_of(made).read_bytes()
    argv = [sys.executable, child.__file__, str(made), str(first), str(last)]
    done = subprocess.run(argv, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        seed, kind, *_ = line.split(" ", 2)
        counts[kind] += 1
        first = int(seed) + 1
        if kind == "wrong":
            wrong.append(f"{line[:400]} {child.flips(data, int(seed))}")
    assert first == last, f"seed {first} ended the process: {done.returncode} {done.stderr}"
    print(counts, *wrong, sep="\n")
    return counts, wrong


@pytest.mark.parametrize("count", some_and_all(20, 60))
def test_flipped_bits(made: Path, count: int) -> None:
    counts, wrong = flipped(made, 0, count)
    assert not wrong
    assert counts["damaged"] > count // 3


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 6000, 1000))
def test_thousands_of_flipped_bits(made: Path, first: int) -> None:
    _, wrong = flipped(made, first, first + 1000)
    assert not wrong


@pytest.mark.parametrize("seed", range(3))
def test_verify_names_it_and_survives(made: Path, seed: int) -> None:
    data = bytearray(data_of(made).read_bytes())
    for at, byte in child.flips(bytes(data), 1000 + seed * 3 + 2) * 2:
        data[at] = byte
    noticed = 0
    for _ in range(3):
        at = random.Random(seed).randrange(8192, len(data))
        data[at] ^= 0x10
        data_of(made).write_bytes(data)
        findings = verify_store(DISK, made / "store")
        noticed += bool(findings)
        assert all(str(data_of(made)) in f.text or "stream" in f.text for f in findings)
    assert noticed


@pytest.mark.parametrize("more", some_and_all(2, 8))
def test_cut_anywhere(made: Path, more: int) -> None:
    """With a log that does not reach back to LSN 1 nothing can take the place of what was cut off."""
    data = data_of(made).read_bytes()
    right, ids = pickle.loads((made / "answers").read_bytes())
    r = random.Random(3)
    sizes = [0, 1, 4095, 4096, 8191, 8192, 8193, len(data) - 1, len(data) - 4096]
    whole = 0
    for size in sizes + [r.randrange(len(data)) for _ in range(more)]:
        data_of(made).write_bytes(data[:size])
        told = child.ask(made / "store", right, ids, random.Random(size))
        assert not told.startswith("wrong"), (size, told)
        whole += told == "right"
        if told != "right":
            assert str(made / "store") in told
            if size % 4 < 2:  # it takes a process each time
                assert any(f.check not in HARMLESS for f in verify_store(DISK, made / "store"))
    assert whole <= 6, "only what lies behind the last page in use may go"


# --- rows

KINDS = {
    "key": rowkeys.KEY,
    "stream": rowkeys.STREAM,
    "page": rowkeys.PAGE,
    "data": rowkeys.DATA,
    "group": rowkeys.GROUP,
    "chunk": rowkeys.CHUNK,
    "expiry": rowkeys.EXPIRY,
    "meta": rowkeys.META,
}


@pytest.mark.parametrize("most", some_and_all(1, 2))
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_missing(made: Path, kind: str, most: int) -> None:
    """Verify notices; what needs it says so, or it is a key that is gone; everything else stays readable."""
    right, ids = pickle.loads((made / "answers").read_bytes())
    data = data_of(made).read_bytes()
    with lmdb.open(str(data_of(made).parent), create=False, lock=False) as env, env.begin() as txn:
        rows = [key for key in txn.cursor().iternext(values=False) if key[:1] == KINDS[kind]]
    for row in random.Random(1).sample(rows, min(len(rows), most)):
        data_of(made).write_bytes(data)
        with lmdb.open(str(data_of(made).parent), create=False, map_size=1 << 30) as env:
            with env.begin(write=True) as txn:
                assert txn.delete(row)
        findings = verify_store(DISK, made / "store")
        assert findings, row
        told = child.ask(made / "store", right, ids, random.Random(1))
        if kind == "meta":
            assert told.startswith("damaged open") and "describes" in told
        elif kind not in ("key", "expiry"):
            # An order of the pending entries that no question asked for is not missed.
            assert told.startswith("damaged") or (kind == "chunk" and told == "right"), told
            number = int.from_bytes(row[1:9], "big")
            with tidelog.open(made / "store", read_only=True) as db:
                for key in child.STREAMS:
                    if f"stream {number}" not in refused(db, key):
                        assert list(db.xrange(key)) == right[f"xrange {key}"]
                assert db.get("k5") == right["get k5"]


def refused(db: tidelog.Store, key: str) -> str:
    try:
        list(db.xrange(key))
        db.xinfo_groups(key)
        db.xpending_range(key, "g", min="-", max="+", count=9999)
    except tidelog.StoreDamaged as error:
        return str(error).replace("stream number", "stream")
    except tidelog.ResponseError:
        pass
    return ""


# --- what does not belong together


def history(root: Path, retain_bytes: int) -> list[tuple[Path, str]]:
    """Copies of a store after each of three checkpoints, the tail behind it in the log, and the digest of each."""
    found = []
    with tidelog.open(
        root,
        fsync="no",
        checkpoint_bytes=0,
        save=(),
        segment_bytes=4096,
        retain_bytes=retain_bytes,
    ) as db:
        for n in range(3):
            db.xadd_many("s", [{"n": i, "of": n, "pad": "x" * 90} for i in range(100)])
            for i in range(30):
                db.xadd(f"t{n}", {"n": i, "pad": "x" * 200})
            db.checkpoint()
            for i in range(20):
                db.xadd("s", {"behind": i, "pad": "x" * 300})
            copy = root.with_name(f"{root.name}-{n}")
            shutil.copytree(root, copy, ignore=shutil.ignore_patterns("LOCK", "lock.mdb"))
            found.append((copy, db.digest()))
    return found


def exchange(to: Path, part: str, by: Path | None) -> None:
    """Put another copy of `part` in its place, or nothing."""
    if (to / part).is_dir():
        shutil.rmtree(to / part)
    else:
        (to / part).unlink(missing_ok=True)
    if by is not None:
        (shutil.copytree if (by / part).is_dir() else shutil.copy)(by / part, to / part)


def refusal(root: Path) -> str:
    """Why it is not opened; the same for readers, and verify has something to say too. Nothing is changed by it."""
    before = {  # blank files hold nothing
        path.relative_to(root): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
        and path.name not in ("LOCK", "lock.mdb", "checked")
        and any(path.read_bytes())
    }
    texts = []
    for read_only in (False, True):
        with pytest.raises((tidelog.StoreDamaged, tidelog.CannotOpen, tidelog.NotAStore)) as raised:
            tidelog.open(root, read_only=read_only).close()
        texts.append(str(raised.value))
    assert [f for f in verify_store(DISK, root) if f.check not in HARMLESS]
    after = {
        path.relative_to(root): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root) in before
    }
    assert after == before
    assert str(root) in texts[0], "it says where"
    assert re.search(r"restore|move|copy|put|choose|repair", texts[0]), f"what to do: {texts[0]}"
    return texts[0]


def digest(root: Path, read_only: bool = False) -> str:
    with tidelog.open(root, read_only=read_only, save=(), checkpoint_bytes=0) as db:
        return db.digest()


@pytest.mark.parametrize(
    "part, how",
    [
        ("checkpoint", "missing"),
        ("checkpoint", "older"),
        *(("checkpoint/data.mdb", h) for h in ("missing", "empty", "zeros", "older", "another")),
    ],
)
def test_the_checkpoint(tmp_path: Path, part: str, how: str) -> None:
    copies = history(tmp_path / "db", 0)
    others = history(tmp_path / "other", 0)
    root = copies[2][0]
    by = {"older": copies[0][0], "another": others[2][0]}.get(how)
    exchange(root, part, by)
    if how in ("empty", "zeros"):
        (root / "checkpoint").mkdir(exist_ok=True)
        (root / "checkpoint" / "data.mdb").write_bytes(b"" if how == "empty" else bytes(8192))
    text = refusal(root)
    if how == "another":
        assert "another store" in text
    else:
        assert re.search(r"missing", text), text


@pytest.mark.parametrize("how", ["missing", "empty", "older", "another", "newer"])
def test_the_log(tmp_path: Path, how: str) -> None:
    copies = history(tmp_path / "db", 0)
    others = history(tmp_path / "other", 0)
    root = copies[1 if how == "newer" else 2][0]
    by = {"older": copies[0], "another": others[2], "newer": copies[2]}.get(how)
    exchange(root, "aof", by and by[0])
    if how == "empty":
        (root / "aof").mkdir()
    refusal(root)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("how", ["missing", "older"])
def test_a_whole_log_makes_good_for_the_checkpoint(
    tmp_path: Path, how: str, read_only: bool
) -> None:
    copies = history(tmp_path / "db", 1 << 40)
    root, expected = copies[2]
    exchange(root, "checkpoint", copies[0][0] if how == "older" else None)
    assert digest(root, read_only) == expected
    assert digest(root) == expected
    with tidelog.open(root, save=(), checkpoint_bytes=0) as db:
        db.checkpoint()
        assert db.verify() == []
        assert db.digest() == expected


def test_the_past_beside_the_present(tmp_path: Path) -> None:
    """Two copies that both went on: neither's checkpoint fits the log of the other."""
    root, _ = history(tmp_path / "db", 1 << 40)[2]
    twin = tmp_path / "twin"
    shutil.copytree(root, twin)
    for path, word in ((root, "here"), (twin, "there")):
        with tidelog.open(path, save=(), checkpoint_bytes=0, retain_bytes=1 << 40) as db:
            for i in range(30):
                db.xadd("s", {"word": word, "n": i, "pad": "x" * 300})
            db.checkpoint()
            db.xadd("s", {"word": word})
    exchange(root, "checkpoint", twin)
    refusal(root)


# --- snapshots


def test_a_manifest_that_lies(tmp_path: Path) -> None:
    from tidelog.snapshot import manifest as manifests
    from tidelog.snapshot.manifest import NAME, render
    from tidelog.snapshot.restore import restore

    root = tmp_path / "db"
    with tidelog.open(root, fsync="no", save=()) as db:
        db.xadd_many("s", [{"n": i} for i in range(500)])
        db.xgroup_create("s", "g", id="0")
        db.set("k", "v")
        made = db.snapshot()
    true = manifests.read(DISK, made.path)
    lies: dict[str, Callable[[], object]] = {
        "uuid": lambda: true._replace(uuid=bytes(16)),
        "lsn": lambda: true._replace(position=true.position._replace(lsn=true.lsn - 1)),
        "crc": lambda: true._replace(position=true.position._replace(crc=1)),
        "incarnation": lambda: true._replace(position=true.position._replace(incarnation=1)),
        "now": lambda: true._replace(now_ms=true.now_ms + 1),
        "hash": lambda: true._replace(blake2b="00" * 32),
        "bytes": lambda: true._replace(data_bytes=true.data_bytes + 4096),
        "streams": lambda: true._replace(counts=true.counts._replace(streams=7)),
        "entries": lambda: true._replace(counts=true.counts._replace(entries=7)),
    }
    for name, lie in lies.items():
        (made.path / NAME).write_bytes(render(lie()))  # type: ignore[arg-type]
        assert verify_snapshot(DISK, made.path), name
        target = tmp_path / f"new-{name}"
        if name in ("streams", "entries"):
            continue  # counts are for people; a restore goes by the rows
        with pytest.raises((TidelogError, Exception)) as raised:
            restore(DISK, made.path, target)
        assert type(raised.value).__name__ in ("SnapshotDamaged", "SnapshotRefused"), raised.value
        assert not (target / "STORE").exists()
    (made.path / NAME).write_bytes(render(true))
    assert verify_snapshot(DISK, made.path) == []
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"")
    with pytest.raises(Exception, match="not empty"):
        restore(DISK, made.path, tmp_path / "full")
    restore(DISK, made.path, tmp_path / "new")
    with pytest.raises(Exception, match="a store already"):
        restore(DISK, made.path, tmp_path / "new")
