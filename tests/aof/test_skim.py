"""Skimming a log: the ends of frames that a look would find, without their records, and never beyond what is proven."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.tools.made import T0, UUID, Made

from tidelog.aof import identity
from tidelog.aof.frame import HEADER_BYTES
from tidelog.aof.segment import Position
from tidelog.aof.tail import Tail
from tidelog.disk.real import RealDisk
from tidelog.engine.effects import effect as e

UNITS = 24


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Two segments of frames of several sizes."""
    rng = random.Random(18)
    made = Made(tmp_path)
    for segment in range(2):
        made.roll(T0)
        made.unit(T0, (e.EPOCH, 1, 0xA1))
        for n in range(UNITS):
            # one is longer than a window
            size = rng.choice((1, 100, 5_000)) if (segment, n) != (1, 10) else 1 << 20
            made.unit(T0, *[(e.SET, 0, b"k", bytes(size), -1)] * rng.choice((1, 1, 3)))
    made.write(zeros=100)
    return made


def tail_of(made: Made, position: Position | None = None) -> Tail:
    return Tail(RealDisk(), made.root / identity.AOF, UUID, position)


def ends(made: Made) -> list[Position]:
    """The positions behind all frames."""
    tail, found = tail_of(made), []
    while (stretch := tail.look(1)) is not None:
        tail.position = stretch.end
        found.append(stretch.end)
    return found


def test_it_ends_where_a_look_ends(made: Made) -> None:
    found = ends(made)
    made.promise(made.lsn - 1)
    assert len(found) == 2 * (UNITS + 1)
    for nbytes in (1, 500, 20_000, 1 << 30):
        for at in found[:-1]:
            stretch, skimmed = tail_of(made, at).look(nbytes), tail_of(made, at).skim(nbytes)
            assert stretch is not None
            if skimmed is None:
                assert at == found[UNITS], "the end of a segment: what follows lies in the next"
                continue
            assert skimmed == (stretch.end, stretch.end.offset - stretch.frames[0][0])
        assert tail_of(made, found[-1]).skim(nbytes) is None
    assert tail_of(made).skim(1) is None, "the beginning of the log is found by a look"


def test_what_is_not_proven_is_left_to_a_look(made: Made) -> None:
    """The last frames may be torn: header and body need not reach the disk together."""
    found = ends(made)
    first, second = found[: UNITS + 1], found[UNITS + 1 :]
    assert tail_of(made, first[0]).skim(1 << 30) is not None, "the next segment proves it"
    assert tail_of(made, second[0]).skim(1 << 30) is None, "nothing proves it"
    made.promise(second[9].lsn, incarnation=0xB2)
    assert tail_of(made, second[0]).skim(1 << 30) is None, "the promise of another life"
    made.promise(second[9].lsn)
    skimmed = tail_of(made, second[0]).skim(1 << 30)
    assert skimmed is not None and skimmed[0] == second[9]
    assert tail_of(made, second[9]).skim(1) is None


def test_a_chain_that_is_broken_is_left_to_a_look(made: Made) -> None:
    """A changed header is passed only if that changes neither where frames end nor which LSNs they have."""
    found = ends(made)[: UNITS + 1]
    known = {(at.lsn, at.offset) for at in found}
    stopped = 0
    for at in range(HEADER_BYTES):
        made.flip(found[4].offset + at, 0)
        skimmed = tail_of(made, found[0]).skim(1 << 30)
        made.flip(found[4].offset + at, 0)
        assert skimmed is not None
        assert (skimmed[0].lsn, skimmed[0].offset) in known
        assert skimmed[0] in (found[4], found[-1])
        stopped += skimmed[0] == found[4]
        made.flip(found[4].offset + at, 0)
        ended = tail_of(made, found[3]).skim(found[5].offset - found[3].offset)
        made.flip(found[4].offset + at, 0)
        assert ended is not None and ended[0] == found[4], (
            "of the last header, the checksum is verified"
        )
    # time, what is synced, and the checksum of the body are not in the chain
    assert stopped == HEADER_BYTES - 20


def test_a_segment_that_is_gone_or_cut(made: Made) -> None:
    found = ends(made)
    made.cut(found[20].offset + HEADER_BYTES + 1, 0)
    skimmed = tail_of(made, found[0]).skim(1 << 30)
    assert skimmed is not None and skimmed[0] == found[20]
    assert tail_of(made, found[20]).skim(1) is None
    assert tail_of(made, found[30]).skim(1) is None, "the file ends before"
    assert tail_of(made, found[3]._replace(incarnation=7)).skim(1) is None
    made.path(0).unlink()
    assert tail_of(made, found[3]).skim(1) is None
