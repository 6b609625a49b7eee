"""Stores with a known past, the ways in which their files break, and a walk of a checkpoint without a child process."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools.made import Made

import tidelog
from tidelog.aof import durable, frame, identity, segment
from tidelog.aof.durable import Promise
from tidelog.crash.trace import Tree, lay, tree_of
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import Effect
from tidelog.engine.keys.state import State
from tidelog.snapshot.walk import WalkFinding, walk_here
from tidelog.tools.aof.records import records_of
from tidelog.tools.bases import checkpoint
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.repair.look import Seen, look
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.plan import Plan, plan

KINDS = ("plain", "folded", "released", "kept")
STORE = "db"


class Past(NamedTuple):
    """A history, as four stores.

    trees     of each kind: `plain` has no checkpoint, `folded` one, `released` only the end of its log, `kept` a
              snapshot too
    digests   LSN at the end of a frame -> digest of the state there
    frames    (segment's name, offset, first LSN, offset behind it) of every frame
    folded    LSN up to which the checkpoint has it
    last      LSN
    uuid      of the store
    written   first LSN of every frame -> (its records, its bytes)
    """

    trees: dict[str, Tree]
    digests: dict[int, str]
    frames: list[tuple[str, int, int, int]]
    folded: int
    last: int
    uuid: bytes
    written: dict[int, tuple[list[Effect], bytes]]

    def lsns(self, name: str, start: int = 0, stop: int = 1 << 60) -> tuple[int, int]:
        """(first, last) LSN of the frames of a segment that end behind `start` and begin before `stop`."""
        at = [n for n, each in enumerate(self.frames) if each[0] == name]
        at = [n for n in at if self.frames[n][3] > start and self.frames[n][1] < stop]
        behind = [*self.frames, ("", 0, self.last + 1, 0)]
        return self.frames[at[0]][2], behind[at[-1] + 1][2] - 1


def here(disk: Disk, folder: Path, progress: Any = None) -> Iterator[WalkFinding]:
    """As `snapshot.walk.walk`, in this process: 3,000 children would take minutes."""
    if not disk.exists(folder / identity.DATA):
        raise FileNotFoundError(folder)
    found: list[dict[str, Any]] = []
    walk_here(folder, found.append)
    yield from (WalkFinding(**each) for each in found if "text" in each)


@cache
def past(place: Path) -> Past:
    """The history, made once below `place`."""
    root = place / "past" / STORE
    root.parent.mkdir()
    pick = random.Random(11)
    for life in range(3):
        with tidelog.open(
            root, fsync="no", segment_bytes=4096, save=(), checkpoint_bytes=0, retain_bytes=1 << 40
        ) as db:
            for n in range(8):
                db.xadd("s", {"n": n, "pad": "x" * pick.randrange(1000)})
                if not db.exists("t"):
                    db.xgroup_create("t", "g", id="0", mkstream=True)
                db.xadd_many("t", [{"n": n}, {"n": -n}])
                if n % 3 == 0:
                    for entry, _ in db.xreadgroup("g", "anna", {"t": ">"}, count=3)[0][1][:2]:
                        db.xack("t", "g", entry)
                if n == 6:
                    db.xtrim("s", maxlen=9, approximate=False)
                if n == 4 and life < 2:
                    if life == 1:
                        db.snapshot()
                    db.checkpoint()
    disk = RealDisk()
    whole = tree_of(disk, root.parent)
    digests, frames, written = _told(root)
    files = LogFiles(root)
    base = checkpoint(files)
    assert base is not None
    released = _released(files, base.start.lsn, whole)
    trees = {
        "plain": _without(whole, "checkpoint", "snapshots"),
        "folded": _without(whole, "snapshots"),
        "released": _without(released, "snapshots"),
        "kept": released,
    }
    return Past(trees, digests, frames, base.start.lsn, max(digests), files.uuid, written)


def _told(
    root: Path,
) -> tuple[dict[int, str], list[tuple[str, int, int, int]], dict[int, tuple[list[Effect], bytes]]]:
    state = State()
    apply = applier(state)
    digests, frames, written = {}, [], {}
    for path, each in LogFiles(root).frames():
        effects = [record.effect for record in records_of(path, each)]
        apply(effects)
        digests[each.lsn + each.count - 1] = digest(state)
        behind = each.offset + frame.HEADER_BYTES + len(each.body)
        frames.append((path.name, each.offset, each.lsn, behind))
        written[each.lsn] = effects, path.read_bytes()[each.offset : behind]
    return digests, frames, written


def _released(files: LogFiles, lsn: int, tree: Tree) -> Tree:
    """The tree without the segments that end before the snapshot, which is before the checkpoint."""
    (kept,) = (files.root / "snapshots").glob("0*")
    lsn = min(lsn, int(kept.name))
    gone = {
        f"{STORE}/aof/{header.path.name}"
        for header in files.headers()[1]
        if header.end is not None and header.end.lsn <= lsn
    }
    assert gone
    return {name: data for name, data in tree.items() if name not in gone}


def _without(tree: Tree, *folders: str) -> Tree:
    inside = tuple(f"{STORE}/{folder}" for folder in folders)
    return {
        name: data
        for name, data in tree.items()
        if not any(name == each or name.startswith(each + "/") for each in inside)
    }


def put(place: Path, tree: Tree) -> Path:
    """Lay a tree out in a directory that does not exist. Returns the store's directory."""
    place.mkdir(parents=True)
    lay(RealDisk(), place, tree)
    return place / STORE


# --- damage


class Broken(NamedTuple):
    """Damage that was done to a store.

    words     for a failing test
    told      parts of the damage that must be named; none if the store need not be damaged by it
    lost      (first, last) LSN of the records that are gone; None: not known, or no one damage is to blame
    stays     every frame that is left stands where it stood
    """

    words: str
    told: tuple[str, ...] = ()
    lost: tuple[int, int] | None = None
    stays: bool = False


NOTHING = 0, 0


def segments(root: Path) -> list[Path]:
    return sorted((root / "aof").glob("*.aof"))


def flip(path: Path, at: int, bit: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def _frames_of(story: Past, path: Path) -> list[tuple[int, int]]:
    return [(at, behind) for name, at, _, behind in story.frames if name == path.name]


def torn(root: Path, story: Past, pick: random.Random) -> Broken:
    """A crash's ordinary trace: nothing to repair."""
    path = segments(root)[-1]
    with path.open("ab") as file:
        file.write(pick.randbytes(pick.randint(1, 200)))
    return Broken(f"torn tail of {path.name}", (), NOTHING, stays=True)


def middle(root: Path, story: Past, pick: random.Random) -> Broken:
    path = pick.choice(segments(root))
    at, behind = pick.choice(_frames_of(story, path))
    place = pick.randrange(at, behind)
    flip(path, place, 1 << pick.randrange(8))
    lost = story.lsns(path.name, at, behind)
    return Broken(f"byte {place} of {path.name}", (f"{path}, byte {at}: ",), lost, stays=True)


def missing(root: Path, story: Past, pick: random.Random) -> Broken:
    there = segments(root)
    at = pick.randrange(len(there))
    path = there[at]
    lost = story.lsns(path.name)
    if path == there[-1]:
        end = _frames_of(story, there[at - 1])[-1][1]
        told = f"{there[at - 1]}, byte {end}: found zeros or the end of the file, although the file DURABLE"
    elif at:
        told = f"{path}, byte 0: a segment is missing here"
    elif not (root / "checkpoint").exists():
        told = f"{there[1]}, byte 0: the segments before this one are missing"
    else:
        told = f"{there[1]}, byte 0: the log begins with LSN {lost[1] + 1}, but the checkpoint ends"
        if story.folded >= lost[1]:  # as if it was released
            told = ""
    path.unlink()
    return Broken(f"{path.name} is missing", (told,) if told else (), lost, stays=True)


def swapped(root: Path, story: Past, pick: random.Random) -> Broken:
    if len(segments(root)) < 2:
        return middle(root, story, pick)
    first, second = pick.sample(segments(root), 2)
    data, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(data)
    told = tuple(f"{path}, byte 40: " for path in (first, second))
    return Broken(f"{first.name} and {second.name} are swapped", told, NOTHING)


def duplicated(root: Path, story: Past, pick: random.Random) -> Broken:
    path = pick.choice(segments(root))
    lsn = pick.choice([lsn for name, _, lsn, _ in story.frames if name == path.name])
    extra = path.with_name(segment.file_name(lsn + 1))
    if pick.random() < 0.5 and not extra.exists() and path != segments(root)[-1]:
        extra.write_bytes(path.read_bytes())
        told = (f"{extra}, byte 40: ",)
        return Broken(f"{path.name} is also there as {extra.name}", told, NOTHING)
    target = pick.choice([each for each in segments(root) if each != path] or [extra])
    lost = story.lsns(target.name) if target.exists() else NOTHING
    target.write_bytes(path.read_bytes())
    return Broken(f"{path.name} in the place of {target.name}", (f"{target}, byte 40: ",), lost)


def foreign(root: Path, story: Past, pick: random.Random) -> Broken:
    made = Made(root.parent / "other")
    path = pick.choice(segments(root))
    lost = story.lsns(path.name)
    if pick.random() < 0.5:
        lost = NOTHING
        lsn = pick.choice([lsn for name, _, lsn, _ in story.frames if name == path.name])
        path = path.with_name(segment.file_name(lsn + 1))
        if path.exists():
            return middle(root, story, pick)
    first_lsn = int(path.stem)
    made.lsn, made.prev = first_lsn, 7
    made.roll(1_700_000_000_000)
    made.raw(1_700_000_000_000, b"\xc0", 1)
    path.write_bytes(bytes(made.segments[0][1]))
    return Broken(f"{path.name} is foreign", (f"{path}, byte 16: ",), lost)


def truncated(root: Path, story: Past, pick: random.Random) -> Broken:
    path = pick.choice(segments(root))
    frames = _frames_of(story, path)
    size = pick.randrange(frames[-1][1])
    path.write_bytes(path.read_bytes()[:size])
    told = f"{path}, byte {size}: the file ends inside the segment's header"
    if size >= segment.HEADER_BYTES:
        at = next(at for at, behind in frames if behind > size)  # the first frame that is not whole
        told = f"{path}, byte {at}: found "
    return Broken(
        f"{path.name} is cut at byte {size}", (told,), story.lsns(path.name, size), stays=True
    )


def header(root: Path, story: Past, pick: random.Random) -> Broken:
    """One byte, a few, or all of a header: the neighbours prove it, unless its predecessor was released."""
    path = pick.choice(segments(root))
    data = bytearray(path.read_bytes())
    length = pick.choice((1, 1, 4, 8, 30, segment.HEADER_BYTES))
    start = pick.randrange(segment.HEADER_BYTES - length + 1)
    data[start : start + length] = pick.choice((bytes(length), pick.randbytes(length)))
    if bytes(data) == path.read_bytes():
        data[start] ^= 0xFF
    path.write_bytes(data)
    lost = NOTHING if path != segments(root)[0] or int(path.stem) == 1 else None
    words = f"bytes {start} to {start + length - 1} of the header of {path.name}"
    return Broken(words, (f"{path}, byte 0: ",), lost)


def displaced(root: Path, story: Past, pick: random.Random) -> Broken:
    """A damaged header under a wrong name: the first frame says where the file belongs."""
    done = header(root, story, pick)
    path = Path(done.told[0].partition(",")[0])
    free = [lsn for lsn in range(1, story.last + 100) if lsn not in map(_first_lsn, segments(root))]
    wrong = path.rename(path.with_name(segment.file_name(pick.choice(free))))
    return Broken(f"{done.words}, which is {wrong.name} now", (f"{wrong}, byte 0: ",), done.lost)


def _first_lsn(path: Path) -> int:
    return int(path.stem)


def store_file(root: Path, story: Past, pick: random.Random) -> Broken:
    path = root / identity.NAME
    way = pick.randrange(4)
    if way == 0:
        path.unlink()
    elif way == 1:
        flip(path, pick.randrange(path.stat().st_size))
    elif way == 2:
        path.write_bytes(path.read_bytes()[: pick.randrange(path.stat().st_size)])
    else:
        path.write_bytes(identity.render(pick.randbytes(16)))
    return Broken(f"STORE, way {way}", (f"{path}, byte ",), NOTHING, stays=True)


def durable_file(root: Path, story: Past, pick: random.Random) -> Broken:
    path = root / "aof" / durable.NAME
    data = bytearray(path.read_bytes())
    for at in durable.SLOT_OFFSETS:
        data[at : at + durable.SLOT_BYTES] = pick.randbytes(durable.SLOT_BYTES)
    path.write_bytes(data)
    return Broken("both slots of DURABLE", (f"{path}, byte 0: ",), NOTHING, stays=True)


def lying_durable(root: Path, story: Past, pick: random.Random) -> Broken:
    """The segment of the newest life is gone: DURABLE proves it."""
    path = root / "aof" / durable.NAME
    promise = Promise(pick.getrandbits(64), story.last + pick.randint(1, 9))
    path.write_bytes(durable.pack(story.uuid, *promise).ljust(durable.FILE_BYTES, b"\0"))
    return Broken(
        "DURABLE has a life that is gone", (f"through LSN {promise.lsn}",), NOTHING, stays=True
    )


def data_file(root: Path, story: Past, pick: random.Random) -> Broken:
    path = root / "checkpoint" / identity.DATA
    if not path.exists():
        return store_file(root, story, pick)
    way = pick.randrange(3)
    data = bytearray(path.read_bytes())
    if way == 0:
        data[:] = b"garbage " * (len(data) // 8)
    elif way == 1:
        for _ in range(pick.randint(1, 3)):
            data[pick.randrange(len(data))] ^= 1 << pick.randrange(8)
    else:
        del data[pick.randrange(len(data)) :]
    path.write_bytes(data)
    has_more = (root / "snapshots").exists() or (root / "aof" / segment.file_name(1)).exists()
    told = (f"{path}, byte 0: page 0 is not a meta page",) if way == 0 else ()
    if way == 2 and data:
        told = (f"{path}, byte {len(data)}: the file ends here",)
    return Broken(f"data.mdb, way {way}", told, NOTHING if has_more else None, stays=True)


Damage = Callable[[Path, Past, random.Random], Broken]
DAMAGES: tuple[Damage, ...] = (
    torn,
    middle,
    missing,
    swapped,
    duplicated,
    foreign,
    truncated,
    header,
    store_file,
    durable_file,
    lying_durable,
    data_file,
    displaced,
)

PAGE = 4096  # of data.mdb
DOUBLE = 0.2  # the share of stores with two damages


def broken(
    seed: int, pick: random.Random, work: Path, story: Past
) -> tuple[Path, str, list[Broken]]:
    """(directory, kind, what was done) of the damaged store of a seed, below the new directory `work`."""
    kind = KINDS[seed % len(KINDS)]
    first = DAMAGES[seed // len(KINDS) % len(DAMAGES)]
    root = put(work, story.trees[kind])
    done = [first(root, story, pick)]
    if pick.random() < DOUBLE and len(segments(root)) > 2:
        with contextlib.suppress(IndexError, ValueError, FileNotFoundError):  # too little is left
            done.append(pick.choice(DAMAGES)(root, story, pick))
    print(f"seed {seed}, {kind}: " + "; ".join(each.words for each in done))
    return root, kind, done


def data_of(root: Path) -> Tree:
    """All files but LMDB's table of readers."""
    tree = tree_of(RealDisk(), root)
    return {name: data for name, data in tree.items() if not name.endswith("lock.mdb")}


def looked_at(root: Path, disk: Disk | None = None) -> tuple[MendedFiles, Seen, Plan | None]:
    """The findings of a repair before it does anything."""
    files = MendedFiles(root, disk)
    seen = look(files)
    return files, seen, plan(files, seen)


def unkept(before: Tree, now: Tree) -> int:
    """How many bytes of the log, STORE and a moved checkpoint are in no file any more, but for short pieces."""
    held = b"".join(data for data in now.values() if data)

    def missing(piece: bytes) -> int:
        if piece in held:
            return 0
        if len(piece) <= 8:
            return len(piece)
        half = len(piece) // 2
        return missing(piece[:half]) + missing(piece[half:])

    moved = any("quarantine" in name and name.endswith("data.mdb") for name in now)
    return sum(
        missing(data[at : at + 128])
        for name, data in before.items()
        if data and (moved or "checkpoint" not in name)
        for at in range(0, len(data), 128)
    )
