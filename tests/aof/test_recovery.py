"""The order in which recovery makes a log ready: what is served is on the disk, and a torn tail is kept, then cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.aof.world import ROOT, Life, Past, open_store, read_back

from tidelog.aof import durable, segment
from tidelog.aof.errors import CorruptFrame, DamagedFile, MissingSegment
from tidelog.aof.log import FSYNCED
from tidelog.aof.reading import reader
from tidelog.aof.reading.reader import read_header
from tidelog.aof.reading.verdicts import Verdict
from tidelog.crash.logs import UUID, data_only
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.effect import Effect

FIRST = ROOT / "aof" / f"{1:020d}.aof"
TAIL = b"half of a frame that nobody was answered for"


def torn(more: int = 0) -> tuple[SimulatedDisk, int]:
    """A killed life with three units that were synced and `more` that were not, and a torn tail; where that begins."""
    disk = SimulatedDisk()
    life = Life(disk, Past())
    for _ in range(3):
        life.add()
    life.wait(FSYNCED)
    for _ in range(more):
        life.add()
    end = life.log.offset
    disk.kill()
    disk.open(FIRST, write=True).write(end, TAIL)
    return disk, end


def recovered(disk: SimulatedDisk) -> tuple[list[Effect], Path | None]:
    applied: list[Effect] = []
    held, found = open_store(disk, applied.extend)
    held.close()
    return data_only(applied), found.quarantined


def test_a_torn_tail_is_cut_off() -> None:
    disk, end = torn()
    before = disk.open(FIRST).size()
    units, quarantined = recovered(disk)
    assert len(units) == 3 and quarantined is not None
    assert before > end and disk.open(FIRST).size() == end
    assert disk.open(quarantined).pread(1000, 0) == TAIL
    # The next recovery finds nothing left to do.
    assert recovered(disk) == (units, None)


def test_another_torn_tail_at_the_same_place_gets_a_copy_of_its_own() -> None:
    """The cut of a recovery that lost power was not durable, and the disk shows other bytes behind it now."""
    disk, end = torn()
    _, first = recovered(disk)
    assert first is not None
    other = TAIL[:20] + bytes(10) + TAIL[30:]
    for tail, name in (
        (TAIL, first.name),
        (other, f"{first.stem}.2.torn"),
        (other, f"{first.stem}.2.torn"),
    ):
        file = disk.open(FIRST, write=True)
        file.truncate(end)
        file.write(end, tail)
        file.close()
        _, quarantined = recovered(disk)
        assert quarantined is not None and quarantined.name == name
        assert disk.open(quarantined).pread(1000, 0) == tail
    assert disk.open(first).pread(1000, 0) == TAIL
    assert sorted(disk.listdir(first.parent)) == [f"{first.stem}.2.torn", first.name]


def test_the_zeros_that_were_prepared_are_cut_off_too() -> None:
    disk = SimulatedDisk()
    life = Life(disk, Past())
    life.add()
    end = life.log.offset
    disk.kill()
    assert disk.open(FIRST).size() > end
    assert recovered(disk)[1] is None
    assert disk.open(FIRST).size() == end


def test_the_copy_of_a_tail_comes_first_then_the_cut_then_the_promise() -> None:
    disk, _ = torn(1)
    disk.operations.clear()
    _, quarantined = recovered(disk)
    assert quarantined is not None
    steps = [(name, path) for name, path in disk.operations if name not in ("open", "pread")]
    wanted = [
        ("fsync", FIRST),  # what is read is on the disk,
        ("drop_cache", FIRST),  # and it is the disk that is read
        ("sync_directory", ROOT / "aof"),
        ("fsync", quarantined.with_name(quarantined.name + ".new")),
        ("rename", quarantined),
        ("sync_directory", quarantined.parent),
        ("truncate", FIRST),
        ("fsync", FIRST),
        ("append", ROOT / "aof" / durable.NAME),
        ("fdatasync", ROOT / "aof" / durable.NAME),
    ]
    at = -1
    for step in wanted:
        assert step in steps[at + 1 :], f"{step[0]} of {step[1].name} does not come in its turn"
        at = steps.index(step, at + 1)


@pytest.mark.parametrize("more", [0, 1])
def test_what_was_read_is_promised_before_it_is_served(more: int) -> None:
    """On the disk, also where the life before had promised it without a sync."""
    disk, _ = torn(more)
    recovered(disk)
    image = disk.synced()
    promises = [promise.lsn for promise in durable.read(image, ROOT / "aof", UUID)]
    assert max(promises, default=0) == 4 + more
    file = image.open(FIRST, write=True)
    file.write(file.size() - 1, b"\xff")  # in the last frame
    with pytest.raises(CorruptFrame, match="DURABLE proves"):
        read_back(image)


@pytest.mark.parametrize("writes", range(1, 7))
def test_a_torn_write_of_durable_leaves_the_newer_promise(writes: int) -> None:
    """A life that opens DURABLE writes over the older of its slots."""
    disk = SimulatedDisk.of({"/aof": None})
    directory = Path("/aof")
    for lsn in range(1, writes + 1):
        slots = durable.DurableFile(disk, directory, UUID)
        before = disk.open(directory / durable.NAME).pread(durable.FILE_BYTES, 0)
        slots.write(lsn, lsn)
        slots.close()
    file = disk.open(directory / durable.NAME, write=True)
    after = file.pread(durable.FILE_BYTES, 0)
    (at,) = [at for at in durable.SLOT_OFFSETS if before[at : at + 48] != after[at : at + 48]]
    file.write(at + 40, b"torn")
    left = [promise.lsn for promise in durable.read(disk, directory, UUID)]
    assert left == [writes - 1][: writes - 1]


def two_lives() -> tuple[SimulatedDisk, list[Path]]:
    """A log of two closed lives, and its segments."""
    disk, past = SimulatedDisk(), Past()
    for _ in range(2):
        life = Life(disk, past)
        life.add()
        life.close()
    paths = [ROOT / "aof" / name for name in disk.listdir(ROOT / "aof") if name.endswith(".aof")]
    assert len(paths) == 2
    return disk, paths


def test_a_life_that_made_a_promise_and_has_no_segment_is_missed() -> None:
    disk, (_, last) = two_lives()
    disk.unlink(last)
    with pytest.raises(MissingSegment, match="the segment that held the last of them is missing"):
        read_back(disk)


def test_a_life_of_one_record_that_has_no_segment_is_missed() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    life.add()
    life.close()
    life = Life(disk, past)
    with life.log.lock:
        life.log.begin_life()
    life.wait(FSYNCED)
    life.close()
    # The promise is of the first LSN that the log lacks.
    disk.unlink(ROOT / "aof" / segment.file_name(3))
    with pytest.raises(MissingSegment, match="the segment that held the last of them is missing"):
        read_back(disk)


def test_a_log_that_was_emptied_is_refused() -> None:
    disk, paths = two_lives()
    for path in (*paths, ROOT / "aof" / durable.NAME):
        disk.unlink(path)
    with pytest.raises(MissingSegment, match="all segments and the file DURABLE are missing"):
        read_back(disk)


def test_a_segment_of_another_store_is_refused() -> None:
    disk, (first, _) = two_lives()
    file = disk.open(first, write=True)
    header = read_header(disk, first)
    file.write(0, header._replace(uuid=bytes(16)).pack())
    with pytest.raises(DamagedFile, match="belongs to another store"):
        read_back(disk)


def test_a_reader_beside_a_writer_waits_for_the_other_half_of_a_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    life = Life(disk, Past())
    life.add()
    at = life.log.offset
    life.add()
    end = life.log.offset
    file = disk.open(FIRST, write=True)
    whole = file.pread(end - at, at)
    file.write(at, whole[:60] + bytes(len(whole) - 60))
    monkeypatch.setattr(
        "tidelog.aof.reading.reader.time.sleep", lambda seconds: file.write(at, whole)
    )
    (info,) = reader.segments(disk, ROOT / "aof", UUID)
    scan = reader.Scan(disk, info, live=True)
    assert [frame.lsn for frame in scan.frames()] == [1, 2, 3]
    assert scan.verdict is Verdict.END
