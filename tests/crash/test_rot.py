"""Damaged stores answer right or raise a clear error; and a store that does not is found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from tidelog.aof.reading import reader
from tidelog.crash import report as reports
from tidelog.crash.damage import CHECKPOINT_DIRECTORY, KINDS, PROOF, Damage, Damages, damaged_in
from tidelog.crash.errors import BadFinding
from tidelog.crash.forked import Died
from tidelog.crash.lives import Step
from tidelog.crash.model import NO_ID, REMEMBERS, Contents
from tidelog.crash.oracle import Fault, Kind, Oracle
from tidelog.crash.removed import deletion
from tidelog.crash.rot import ROT, Answers, Effort, Examiner, Question, Rotter, judge
from tidelog.crash.served import Files
from tidelog.crash.shrink import shrink, tried_again
from tidelog.crash.states import SECTOR, cut_at
from tidelog.crash.trace import Promised, Trace, Tree, unpack
from tidelog.crash.workloads import record
from tidelog.disk.real import RealDisk
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.snapshot.rows import environment

STEPS: list[Step] = [
    ["add", 0, 700],
    ["read", 0, 1],
    ["checkpoint"],
    ["snapshot"],
    *([["add", 1, 3000]] * 4),
    ["set", 0, 20],
    ["checkpoint"],
    ["set", 1, 600],
    ["ack", 0, 1],
]
LOG = "store/aof/00000000000000000001.aof"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    stage = Files(tmp_path_factory.mktemp("recorded"))
    return record(stage, "no", STEPS, {"seed": "1"})


@pytest.fixture
def rotter(tmp_path: Path) -> Iterator[Callable[[int], Rotter]]:
    made: list[Rotter] = []

    def make(drawn: int, seed: int = 1) -> Rotter:
        made.append(Rotter(tmp_path, random.Random(seed), Effort(drawn)))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_damage_is_never_silent(trace: Trace, rotter: Callable[[int], Rotter]) -> None:
    found = rotter(20)
    found.rot(trace, len(trace.operations))
    found.rot(trace, len(trace.operations) * 2 // 3)
    assert [each.words for each in found.report.findings] == []
    counts = found.report.of(ROT)
    assert counts.there > 100_000 and counts.tried == 40
    assert 25 < counts.distinct <= 40
    assert 5 < counts.told < counts.distinct


class Agreed(int):
    """A checksum that is equal to every other one."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def test_a_log_that_looks_at_no_checksum_is_found_kept_and_tried_again(
    trace: Trace,
    rotter: Callable[[int], Rotter],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("again")
    with monkeypatch.context() as patch:
        patch.setattr(reader, "crc32c_of", lambda data: Agreed(crc32c_of(data)))
        rotten = rotter(400)
        rotten.rot(trace, len(trace.operations))
        (finding,) = rotten.report.findings
        assert finding.damage is not None and "/aof/" in finding.damage.path + finding.damage.other
        assert shrink(finding, place, 60) == finding
        reports.save(RealDisk(), place / "found", finding)
        loaded = reports.load(RealDisk(), place / "found")
        assert loaded == finding
        assert finding.damage.words() in "\n".join(reports.describe(loaded))
        scratch = place / "scratch"
        scratch.mkdir()
        fault = tried_again(loaded, unpack(loaded.trace, "x"), scratch)
        assert fault is not None and fault.kind.value == finding.kind
    assert tried_again(loaded, unpack(loaded.trace, "x"), scratch) is None
    assert list(scratch.iterdir()) == []

    about = place / "found" / reports.FINDING
    text = about.read_text()
    about.write_text(text.replace(f'"{finding.damage.path}"', '"store/elsewhere"'))
    with pytest.raises(BadFinding, match="cannot have"):
        reports.load(RealDisk(), place / "found")


@pytest.mark.slow
def test_rows_whose_checksum_is_not_looked_at_are_found(
    trace: Trace, rotter: Callable[[int], Rotter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        environment, "crc32c_after", lambda seed, data: Agreed(crc32c_after(seed, data))
    )
    rotten = rotter(400)
    rotten.rot(trace, len(trace.operations))
    (finding,) = rotten.report.findings
    assert finding.damage is not None and finding.damage.path.endswith("data.mdb")


def test_half_of_an_exchange_with_durable_costs_nothing_without_an_error(tmp_path: Path) -> None:
    """A sector of DURABLE exchanged with one of the log is two faults: the proof is gone, and what it proves.

    No store can tell that from a torn tail, so the bench does not draw it. Each of the two alone is told or harmless.
    """
    (tmp_path / "recorded").mkdir()
    steps: list[Step] = [["add", 0, 300], ["set", 0, 600], ["add", 0, 700], ["set", 0, 20]]
    trace = record(Files(tmp_path / "recorded"), "always", steps, {"seed": "1"})
    # The process is killed after the last step, so nothing but DURABLE proves the last frame.
    time = next(n for n, each in enumerate(trace.operations) if each == Promised(4, 4, 4))
    cut = cut_at(trace, time + 1)
    image = cut.image(cut.whole)
    log, proof = image[LOG], image[PROOF]
    assert log is not None and proof is not None

    def sectors(content: bytes) -> list[int]:
        found = range(0, len(content), SECTOR)
        return [at for at in found if content[at : at + SECTOR].strip(b"\0")]

    def exchanged(path: str, at: int, sector: bytes) -> Tree:
        content = image[path] or b""
        return {**image, path: content[:at] + sector + content[at + SECTOR :]}

    examiner = Examiner(tmp_path)
    outcomes = set()
    try:
        for ours, theirs in product(sectors(proof), sectors(log)):
            slot, frames = proof[ours : ours + SECTOR], log[theirs : theirs + SECTOR]
            for path, rotten in (
                (PROOF, exchanged(PROOF, ours, frames)),
                (LOG, exchanged(LOG, theirs, slot)),
            ):
                answers = examiner.ask(Question(rotten, ""))
                assert judge(Oracle(trace.units), cut.promised, answers, None) is None, (
                    path,
                    theirs,
                )
                assert isinstance(answers, Answers)
                outcomes.add((path, bool(answers.told)))
    finally:
        examiner.close()
    assert outcomes == {(PROOF, False), (LOG, True)}


def test_a_file_that_became_a_hole_of_gigabytes_is_answered_for(
    trace: Trace, tmp_path: Path
) -> None:
    """The meta page says that the last page is one far away, and the store extends the file up to it."""
    cut = cut_at(trace, len(trace.operations))
    image = cut.image(cut.whole)
    path = f"{CHECKPOINT_DIRECTORY}/data.mdb"
    data = bytearray(image[path] or b"")
    for page in range(2):
        data[page * 4096 + 139] ^= 1  # the fourth byte of the number of the last page
    examiner = Examiner(tmp_path)
    try:
        answers = examiner.ask(Question({**image, path: bytes(data)}, ""))
    finally:
        examiner.close()
    assert isinstance(answers, Answers), answers
    assert judge(Oracle(trace.units), cut.promised, answers, None) is None


def test_every_kind_of_damage_is_drawn_and_can_be_made_again(trace: Trace) -> None:
    time = len(trace.operations)
    cut = cut_at(trace, time)
    damages = Damages(trace, cut.image(cut.whole), time)
    rng = random.Random(1)
    seen = set()
    for _ in range(80):
        damage, image = damages.draw(rng)
        seen.add(damage.kind)
        assert image != damages.image
        assert damaged_in(trace, time, damage) == image
        assert damage.path in damage.words()
    assert seen == set(KINDS)


BLANK = "store/checkpoint/data.mdb"
BEFORE: Tree = {
    "store": None,
    BLANK: bytes(8192),
    "store/STORE": b"s",
    LOG: b"one two\0\0",
    "store/LOCK": b"1",
}


@pytest.mark.parametrize(
    ("after", "opened", "words"),
    [
        (BEFORE | {"store/LOCK": b"2"}, False, ""),
        (BEFORE | {LOG: b"one two\0\0three"}, True, ""),
        (BEFORE | {BLANK: b"made anew"}, True, ""),
        (BEFORE | {"store/STORE": b"s\0"}, True, ""),
        (BEFORE | {"store/STORE": b"t\0"}, True, "store/STORE was changed"),
        (BEFORE | {LOG: b"one"}, False, "the open failed, and changed"),
        (BEFORE | {LOG: b"one"}, True, f"{LOG} was changed"),
        (BEFORE | {LOG: b"one", "store/quarantine/1": b" two"}, True, ""),
        (BEFORE | {LOG: b"one", "store/quarantine/1": b" tw"}, True, f"{LOG} was changed"),
        ({"store": None, LOG: b"one two"}, True, "store/STORE was removed"),
    ],
)
def test_nothing_is_deleted_but_what_lies_in_quarantine(
    after: Tree, opened: bool, words: str
) -> None:
    found = deletion(BEFORE, after, opened)
    assert found.startswith(words) and bool(found) == bool(words)


def test_a_copy_of_an_open_that_lost_power_is_a_copy() -> None:
    before: Tree = {**BEFORE, "store/quarantine/1": b" two"}
    assert deletion(before, {**before, LOG: b"one"}, True) == ""


ADDED = [["add", b"s", b"1-0", [b"f", b"v"]]]
SET = [["set", b"k", b"1"]]
UNITS = [ADDED, SET, [["set", b"k", b"2"]]]
STREAM = (((b"1-0", (b"f", b"v")),), b"1-0", 1, (), NO_ID, (*REMEMBERS, 0, 0, 0))
PROMISED = Promised(2, 3, 3)


@pytest.mark.parametrize(
    ("contents", "told", "units", "fault"),
    [
        ({b"s": STREAM, b"k": b"2"}, {}, None, None),
        ({b"s": STREAM, b"k": b"1"}, {}, None, None),
        ({b"s": STREAM}, {}, None, Kind.WRONG),  # an acknowledged key is silently missing
        ({b"s": STREAM}, {b"k": "damaged"}, None, None),
        ({}, {None: "does not open"}, None, None),
        ({b"s": STREAM, b"k": b"3"}, {None: "at close"}, None, Kind.WRONG),
        ({b"s": STREAM}, {}, 1, None),  # a snapshot after the first unit
        ({b"s": STREAM, b"k": b"1"}, {}, 1, Kind.WRONG),
    ],
)
def test_answers_are_right_or_an_error(
    contents: Contents, told: dict[bytes | None, str], units: int | None, fault: Kind | None
) -> None:
    found = judge(Oracle(UNITS), PROMISED, Answers(contents, told, "", ""), units)
    assert (found and found.kind) == fault


def test_an_error_that_is_not_tidelogs_and_a_deleted_file_are_faults() -> None:
    oracle = Oracle(UNITS)
    unclear = judge(oracle, PROMISED, Answers({}, {}, "KeyError: 1", ""), None)
    assert unclear == Fault(Kind.DIED, "an error that is not tidelog's: KeyError: 1")
    deleted = judge(oracle, PROMISED, Answers({}, {None: "x"}, "", "a was removed"), None)
    assert deleted == Fault(Kind.LOST, "a was removed")
    assert judge(oracle, PROMISED, Died("hung"), None) == Fault(Kind.DIED, "hung")


def test_damage_has_its_file(trace: Trace) -> None:
    assert Damage("flip", "a", 13).words() == "bit 5 of byte 1 of a flipped"
