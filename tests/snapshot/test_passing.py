"""The disk says which snapshots were made for followers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.snapshot.portable.portable_world import ROOT, SNAPSHOTS, T0, content, copy, make

from tidelog.aof.layout import FOLLOWERS
from tidelog.disk.simulated import SimulatedDisk
from tidelog.snapshot import passing, portable


def path(lsn: int) -> Path:
    return SNAPSHOTS / portable.directory_name(lsn)


@pytest.fixture
def disk() -> SimulatedDisk:
    found = SimulatedDisk.of({str(ROOT): None}, 0)
    make(found, 3)
    return found


def made(disk: SimulatedDisk, lsn: int) -> None:
    """A snapshot for a follower."""
    with portable.held(disk, SNAPSHOTS):
        portable.publish(disk, SNAPSHOTS, copy(disk, lsn), lambda _: content(lsn), T0, passing=True)


def test_the_list(disk: SimulatedDisk) -> None:
    assert passing.names(disk, SNAPSHOTS) == frozenset()
    made(disk, 7)
    made(disk, 9)
    assert passing.names(disk, SNAPSHOTS) == {path(7).name, path(9).name}
    passing.take(disk, SNAPSHOTS, path(7))
    passing.take(disk, SNAPSHOTS, path(3))  # it is in no list
    assert portable.delete_passing(disk, SNAPSHOTS, path(7)) and disk.exists(path(7))
    assert portable.delete_passing(disk, SNAPSHOTS, path(9)) and not disk.exists(path(9))
    assert not disk.exists(SNAPSHOTS / FOLLOWERS)
    assert portable.lsns(disk, SNAPSHOTS) == [3, 7]


@pytest.mark.parametrize("steps", ["made", "deleted"])
def test_no_power_cut_leaves_one_without_an_owner(disk: SimulatedDisk, steps: str) -> None:
    rng = random.Random(5)
    if steps == "deleted":
        made(disk, 7)

    def before(operation: str, place: Path) -> None:
        for image in (disk.killed(), *(disk.power_loss(rng) for _ in range(6))):
            if image.exists(path(7)):
                assert path(7).name in passing.names(image, SNAPSHOTS)
            assert path(3).name not in passing.names(image, SNAPSHOTS) and image.exists(path(3))

    disk.before = before
    if steps == "made":
        made(disk, 7)
    else:
        portable.delete_passing(disk, SNAPSHOTS, path(7))


@pytest.mark.parametrize("text", [b"", b"something", b"tidelog followers' snapshots\nformat 9\n"])
def test_a_list_that_cannot_be_read_names_none(
    disk: SimulatedDisk, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    made(disk, 7)
    file = disk.create(SNAPSHOTS / FOLLOWERS)
    file.write(0, text)
    file.close()
    assert passing.names(disk, SNAPSHOTS) == frozenset()
    assert "stay until you delete them" in caplog.text
    made(disk, 9)
    assert passing.names(disk, SNAPSHOTS) == {path(9).name}
