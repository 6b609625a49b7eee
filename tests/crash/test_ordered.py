"""The states of a file system that keeps the order of names, and data before the name or size that shows it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidelog.crash.ordered import ordered
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import Memory
from tidelog.crash.states import Cut, cut_at, cuts
from tidelog.crash.trace import Tree
from tidelog.crash.workloads import long, record
from tidelog.disk.simulated import SimulatedDisk

ROOT = Path("/")
A, B = b"a" * 512, b"b" * 512


def recorder(**files: bytes) -> RecordingDisk:
    return RecordingDisk(
        SimulatedDisk.of({f"/{name}": content for name, content in files.items()}), ROOT
    )


def now(disk: RecordingDisk) -> Cut:
    trace = disk.trace({}, [])
    return cut_at(trace, len(trace.operations))


def images(disk: RecordingDisk) -> list[Tree]:
    """The different images that a power cut leaves now, in no order."""
    cut = now(disk)
    found: list[Tree] = []
    for state in cut.states(random.Random(1), 10_000):
        image = cut.image(ordered(cut, state))
        if image not in found:
            found.append(image)
    return found


def test_names_are_durable_in_their_order() -> None:
    disk = recorder()
    for name in ("f", "g", "h"):
        disk.create(ROOT / name).close()
    assert sorted("".join(image) for image in images(disk)) == ["", "f", "fg", "fgh"]


def test_a_sync_of_a_new_file_makes_its_name_and_all_earlier_ones_durable() -> None:
    disk = recorder()
    disk.create(ROOT / "f").close()
    file = disk.create(ROOT / "g")
    disk.create(ROOT / "h").close()
    file.fsync()
    assert images(disk) == [{"f": b"", "g": b"", "h": b""}]
    disk.create(ROOT / "i").close()
    file.fsync()  # it has nothing that is not in the journal
    assert sorted("".join(image) for image in images(disk)) == ["fgh", "fghi"]


def test_a_file_does_not_get_its_name_before_its_data() -> None:
    disk = recorder(f=A)
    file = disk.create(ROOT / "g")
    file.write(0, B + B)
    disk.rename(ROOT / "g", ROOT / "f")
    found = [image["f"] for image in images(disk)]
    assert A in found and B + B in found
    assert set(found) == {A, B + B}


def test_a_file_does_not_grow_before_the_data_is_there() -> None:
    disk = recorder(f=A + B[:100])
    file = disk.open(ROOT / "f", write=True)
    file.write(612, B)
    grown = (A + B[:100] + B)[: 612 + 512]
    assert sorted(len(image["f"] or b"") for image in images(disk)) == [612, 612 + 512]
    assert {image["f"] for image in images(disk)} == {A + B[:100], grown}


def test_sectors_that_had_a_block_are_independent() -> None:
    disk = recorder(f=A + A)
    disk.open(ROOT / "f", write=True).write(0, B + B)
    assert {image["f"] for image in images(disk)} == {A + A, A + B, B + A, B + B}


@pytest.mark.parametrize("policy", ["always", "no"])
def test_an_ordered_state_is_a_legal_one_and_stays_as_it_is(policy: str) -> None:
    trace = record(Memory(), policy, long(random.Random(3), 4, checkpoints=False), {})
    tried = 0
    for cut in cuts(trace):
        assert ordered(cut, cut.whole) == cut.whole
        for state in cut.states(random.Random(cut.time), 3, 8):
            found = ordered(cut, state)
            assert ordered(cut, found) == found
            assert all(
                0 <= option < len(choice.options)
                for option, choice in zip(found, cut.choices, strict=True)
            )
            tried += 1
    assert tried > 100
