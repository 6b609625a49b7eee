"""A whole store on a disk that loses power, or fails, at every operation.

The tests of aof/ attack the log with made-up records. Here the records are a store's, and what is compared
is the state: after any power cut it is the state after some whole number of units, none missing that was
acknowledged; after any error memory and log agree, and every call was told the truth.
"""

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rounds import some_and_all

import tidelog
from tidelog.aof import identity
from tidelog.aof.reading.recovery import read_all
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.effects.digest import digest as digest_of
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.keys.state import State

ROOT = Path("/store")
STEPS = 16
NEEDS_SPACE = {"create", "write", "append", "fill", "rename", "mkdir"}


def open_on(disk: SimulatedDisk, fsync: str = "always") -> tidelog.Store:
    return tidelog.open(ROOT, fsync=fsync, segment_bytes=8192, disk=disk)


def last_lsn(db: tidelog.Store) -> int:
    return int(db.info()["next_lsn"]) - 1


def step(db: tidelog.Store, rng: random.Random, value: bytes) -> None:
    """One random call that writes at least one unit holding `value`."""
    way = rng.randrange(8)
    pad = b"p" * rng.choice((0, 10, 300, 2500))
    if way <= 2:
        db.xadd("s", {b"v": value, b"pad": pad})
    elif way == 3:
        db.xadd_many("s", [{b"v": value, b"n": b"%d" % n} for n in range(rng.choice((1, 30, 150)))])
    elif way == 4:
        with db.pipeline(transaction=True) as pipe:
            pipe.xadd("s", {b"v": value})
            pipe.set("cursor", value)
            pipe.xtrim("s", maxlen=40, approximate=rng.random() < 0.5)
            pipe.execute()
    elif way == 5:
        db.xadd("s", {b"v": value, b"pad": pad}, maxlen=rng.randrange(1, 50), approximate=False)
    elif way == 6:
        if not db.exists("s") or not db.xinfo_groups("s"):
            db.xgroup_create("s", "g", id="0", mkstream=True)
        for _stream, entries in db.xreadgroup("g", rng.choice("ab"), {"s": ">"}, count=5):
            db.xack("s", "g", *[entry_id for entry_id, _ in entries[::2]])
        db.xadd("s", {b"v": value})
    else:
        db.set("cursor", value, ex=rng.choice((None, 1000)))


def present(db: tidelog.Store, value: bytes) -> bool:
    """Whether anything that only the call with this value could have written is there."""
    if db.get("cursor") == value:
        return True
    return any(fields.get(b"v") == value for _id, fields in db.xrange("s"))


class PowerCuts:
    """Opens images of the disk at the moment of every operation, and compares states with the whole log's."""

    def __init__(self, disk: SimulatedDisk, rng: random.Random, images: int) -> None:
        self.disk = disk
        self.rng = rng
        self.images = images
        self.promised = 0  # LSN of the last record acknowledged as durable
        self.live: dict[int, str] = {}  # LSN -> digest of the store between two calls
        self.found: list[tuple[int, int, str]] = []  # promised then, LSN and digest after recovery
        self.distinct: set[int] = set()

    def note(self, db: tidelog.Store, fsynced: bool) -> None:
        self.live[last_lsn(db)] = db.digest()
        if fsynced:
            self.promised = last_lsn(db)

    def look(self, operation: str, path: Path) -> None:
        for _ in range(self.images):
            image = self.disk.power_loss(self.rng)
            key = hash(frozenset(image.tree().items()))
            if key not in self.distinct:
                self.distinct.add(key)
                with open_on(image, "no") as db:
                    self.found.append((self.promised, last_lsn(db), db.digest()))

    def compare(self) -> None:
        digests = digests_of_log(self.disk)
        for lsn, digest in self.live.items():
            assert digests[lsn] == digest, f"replay through LSN {lsn} is not what was live"
        for promised, lsn, digest in self.found:
            assert lsn >= promised, f"LSN {promised} was acknowledged, the log ends with {lsn}"
            assert lsn in digests, f"LSN {lsn} is in the middle of a unit"
            assert digests[lsn] == digest, f"not the state after LSN {lsn}"


def digests_of_log(disk: SimulatedDisk) -> dict[int, str]:
    """LSN of each unit's last record -> digest of the state after it, by replaying one unit at a time."""
    state = State()
    digests = {0: digest_of(state)}
    lsn = 0

    def apply(records: list[Effect]) -> None:
        nonlocal lsn
        for record in records:
            APPLY[record[0]](state, record)
            lsn += 1
            if record[0] & END:
                digests[lsn] = digest_of(state)

    uuid = identity.read(disk, ROOT)
    directory = ROOT / identity.AOF
    read_all(disk, directory, uuid, apply)
    return digests


def test_power_cut_at_every_operation_leaves_a_prefix_of_units() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    opened = 0
    for policy in ("always", "everysec", "no"):
        disk = SimulatedDisk(seed)
        db = open_on(disk, policy)
        cuts = PowerCuts(disk, rng, images=1)
        disk.before = cuts.look
        for number in range(STEPS):
            step(db, rng, b"%d" % number)
            if policy != "always" and rng.random() < 0.3:
                db.barrier("fsynced")
                cuts.note(db, True)
            else:
                cuts.note(db, policy == "always")
        db.close()
        disk.before = None
        cuts.compare()
        opened += len(cuts.found)
    assert opened > 60


class Fault:
    """Fails operation number `at` of a disk; `lasting`: and each one like it until `mend`."""

    def __init__(self, disk: SimulatedDisk, at: int, code: int, lasting: bool) -> None:
        self.disk, self.left, self.code, self.lasting = disk, at, code, lasting
        self.failed: str | None = None
        disk.before = self

    def __call__(self, operation: str, path: Path) -> None:
        if self.left:
            self.left -= 1
            return
        if self.failed is not None and not self.lasting:
            return
        if self.code == errno.ENOSPC and operation not in NEEDS_SPACE:
            return
        if self.lasting and self.failed is not None and operation not in NEEDS_SPACE:
            return
        self.failed = operation
        raise OSError(self.code, "injected", str(path))

    def mend(self) -> None:
        self.disk.before = None


def told(call: Callable[[], object]) -> str:
    """The outcome that a caller was told: stored, not stored, unknown, or that the store is gone."""
    try:
        call()
    except tidelog.NotStored:
        return "not stored"
    except tidelog.OutcomeUnknown:
        return "unknown"
    except (tidelog.StorePoisoned, tidelog.StoreClosed):
        return "gone"
    return "stored"


def run_with_fault(seed: int, at: int, code: int, lasting: bool) -> str | None:
    """A workload with one fault. Returns the operation that failed, None if the workload has fewer."""
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    open_on(disk).close()
    fault = Fault(disk, at, code, lasting)
    outcomes: dict[bytes, str] = {}
    try:
        db = open_on(disk)
    except tidelog.CannotOpen:
        assert fault.failed
        fault.mend()
        disk.kill()
        open_on(disk).close()
        return fault.failed
    poisoned = False
    for number in range(STEPS):
        value = b"%d" % number
        before = db.digest() if not poisoned else None
        # One XADD a call, so that "not stored" and "stored" speak of one unit.
        way = rng.randrange(3)
        if way == 0:
            outcome = told(lambda: db.xadd("s", {b"v": value, b"pad": b"x" * 900}))
        elif way == 1:
            outcome = told(lambda: db.xadd_many("s", [{b"v": value}] * 120))
        else:
            with db.pipeline(transaction=True) as pipe:
                pipe.xadd("s", {b"v": value})
                pipe.set("cursor", value)
                outcome = told(lambda: pipe.execute())
        outcomes[value] = outcome
        if outcome == "not stored":
            try:
                assert db.digest() == before, "told 'not stored', and memory changed"
            except tidelog.OutOfSpace:
                # A write broke off, and to take it out of the log needs room for a copy.
                assert lasting
        if outcome in ("unknown", "gone"):
            poisoned = True
            break
        if outcome == "not stored" and lasting:
            fault.mend()
            assert db.digest() == before
            db.xadd("s", {b"v": b"room again"})
    fault.mend()
    live = None if poisoned else db.digest()
    try:
        db.close()
        assert not poisoned, "a poisoned store closed without a word"
    except tidelog.StorePoisoned:
        assert fault.failed
    disk.kill()
    with open_on(disk) as again:
        if live is not None:
            assert again.digest() == live
        for value, outcome in outcomes.items():
            if outcome == "stored":
                assert any(fields.get(b"v") == value for _id, fields in again.xrange("s"))
            elif outcome == "not stored":
                assert not present(again, value)
        again.xadd("s", {b"v": b"after"})
    return fault.failed


@pytest.mark.parametrize(
    ("code", "lasting"), [(errno.EIO, False), (errno.ENOSPC, False), (errno.ENOSPC, True)]
)
@pytest.mark.parametrize("every", some_and_all(5, 1))
def test_an_error_at_every_operation_leaves_memory_and_log_in_agreement(
    code: int, lasting: bool, every: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    at = 0
    failed = set()
    while (operation := run_with_fault(seed, at, code, lasting)) is not None:
        failed.add(operation)
        at += every
    assert at > 30
    assert every > 1 or {"append", "fill", "create"} <= failed
