"""A place in the log is found by its LSN, and the bytes behind it are read beside the writer."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from tests.aof.opened import Opened
from tests.aof.shipping import AOF, Leader, batches, frames_in
from tests.aof.world import Life, Past, open_store

from tidelog.aof import segment
from tidelog.aof.errors import BeyondEnd, CorruptFrame, MissingSegment, Released, Vanished
from tidelog.aof.frame import HEADER, HEADER_BYTES
from tidelog.aof.log import FSYNCED, WRITTEN
from tidelog.aof.reading.reader import Scan, segment_paths, segments
from tidelog.aof.release import release
from tidelog.aof.seek import Source, now_behind, position_after
from tidelog.aof.segment import Position
from tidelog.crash.logs import UUID
from tidelog.disk.interface import Disk
from tidelog.disk.simulated import SimulatedDisk


def leader_of_two_lives() -> Leader:
    leader, rng = Leader(3), random.Random(3)
    leader.fill(25, rng)
    leader.restart()
    leader.fill(25, rng)
    return leader


def after_each_frame(disk: Disk) -> dict[int, Position]:
    """LSN -> the position behind the frame that ends with it, by a scan of everything."""
    found = {}
    for info in segments(disk, AOF, UUID):
        scan = Scan(disk, info)
        for _ in scan.tuples():
            pass
        scan = Scan(disk, info)
        for offset, lsn, count, _, _, crc, body in scan.tuples():
            end = offset + HEADER_BYTES + len(body)
            found[lsn + count - 1] = Position(
                lsn + count - 1, crc, info.header.first_lsn, end, info.header.incarnation
            )
    return found


def test_every_lsn_is_the_end_of_a_frame_or_lies_inside_one() -> None:
    leader = leader_of_two_lives()
    known = after_each_frame(leader.disk)
    last = leader.life.log.written_lsn
    starts = {info.header.first_lsn - 1: info.header for info in segments(leader.disk, AOF, UUID)}
    assert len(starts) > 3
    inside = 0
    for lsn in range(last + 1):
        position = position_after(leader.disk, AOF, UUID, lsn)
        if lsn in starts:
            header = starts[lsn]
            wanted = Position(lsn, header.before.crc, lsn + 1, 80, header.incarnation)
            assert position == wanted
            assert lsn == 0 or position.crc == known[lsn].crc
        else:
            assert position == known.get(lsn)
            inside += position is None
    assert inside > 5
    with pytest.raises(BeyondEnd) as raised:
        position_after(leader.disk, AOF, UUID, last + 1)
    assert (raised.value.lsn, raised.value.last_lsn) == (last + 1, last)


def test_a_log_without_segments_has_its_beginning() -> None:
    disk = SimulatedDisk()
    held, recovered = open_store(disk, lambda _: None)
    held.close()
    assert position_after(disk, AOF, UUID, 0) == recovered.position
    with pytest.raises(BeyondEnd):
        position_after(disk, AOF, UUID, 1)
    disk.unlink(AOF / "DURABLE")
    with pytest.raises(MissingSegment):
        position_after(disk, Path("/nowhere"), UUID, 0)


def test_a_released_place_is_named() -> None:
    leader = leader_of_two_lives()
    first = int(segment_paths(leader.disk, AOF)[2].stem)
    release(leader.disk, AOF, first - 1, keep_bytes=0)
    with pytest.raises(Released) as raised:
        position_after(leader.disk, AOF, UUID, first - 2)
    assert (raised.value.lsn, raised.value.first_lsn) == (first - 2, first)
    at = position_after(leader.disk, AOF, UUID, first - 1)
    assert at is not None and at.segment == first


def test_damage_on_the_way_is_reported() -> None:
    leader = leader_of_two_lives()
    info = segments(leader.disk, AOF, UUID)[1]
    assert info.end is not None
    offset = segment.HEADER_BYTES
    file = leader.disk.open(info.path, write=True)
    good = file.pread(HEADER_BYTES, offset)
    for bad in (bytes(HEADER_BYTES), good[:20] + b"\xff" + good[21:]):
        file.write(offset, bad)
        with pytest.raises(CorruptFrame) as raised:
            position_after(leader.disk, AOF, UUID, info.end.lsn - 1)
        assert (raised.value.path, raised.value.offset) == (info.path, offset)


def test_a_long_frame_is_skipped_unread() -> None:
    disk = SimulatedDisk()
    life = Life(disk, Past(), segment_bytes=8 << 20)
    for padding in (10, 900_000, 10, 300_000, 10):
        last = life.add(1, padding)
    disk.operations.clear()
    position = position_after(disk, AOF, UUID, last)
    assert position is not None and position.offset == life.log.offset
    assert [name for name, _ in disk.operations].count("pread") < 8


def test_the_time_of_the_next_frame_is_read_from_its_header() -> None:
    leader = leader_of_two_lives()
    known = after_each_frame(leader.disk)
    times = {}
    for part in frames_in(leader.shipped()):
        fields = HEADER.unpack_from(part)
        times[fields[2] - 1] = fields[4]
    assert len(set(times.values())) > 20
    last = leader.life.log.written_lsn
    for lsn in [0, *known]:
        at = position_after(leader.disk, AOF, UUID, lsn)
        assert at is not None
        for position in (at, known.get(lsn, at)):  # also named at the end of the segment before
            if position.segment == at.segment or position.lsn + 1 == at.segment:
                assert now_behind(leader.disk, AOF, UUID, position) == times.get(lsn)
    assert now_behind(leader.disk, AOF, UUID, known[last]) is None
    some = known[sorted(known)[3]]
    with pytest.raises(CorruptFrame):
        now_behind(leader.disk, AOF, UUID, some._replace(crc=1))
    with pytest.raises(Vanished):
        now_behind(leader.disk, AOF, UUID, some._replace(incarnation=999))


def test_a_source_gives_the_frames_and_nothing_else() -> None:
    leader = leader_of_two_lives()
    data = leader.shipped()
    assert sum(len(batch.records) for batch in batches(data)) == leader.life.log.written_lsn
    known = after_each_frame(leader.disk)
    at = 0
    for part in frames_in(data):
        at += len(part)
        fields = HEADER.unpack_from(part)
        lsn = fields[2] + fields[3] - 1
        assert leader.shipped(lsn) == data[at:]
        # a position at the end of a segment names that segment or the next one
        source = Source(leader.disk, AOF, UUID, known[lsn])
        read = b""
        while piece := source.read(1 << 20, leader.life.log.good(WRITTEN)):
            read += piece
        assert read == data[at:]
        source.close()


def test_a_source_reads_only_what_is_good() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    source = Source(disk, AOF, UUID, Position(0, 0, 1, segment.HEADER_BYTES, 0))
    assert source.read(100, life.log.good(WRITTEN)) == b""
    life.add()
    life.wait(FSYNCED)
    whole = source.read(1000, life.log.good(FSYNCED))
    life.add()
    assert source.read(1000, life.log.good(FSYNCED)) == b""
    more = source.read(1000, life.log.good(WRITTEN))
    assert [batch.last for batch in batches(whole + more, nbytes_max=1)] == [1, 2, 3]
    assert source.read(1000, life.log.good(WRITTEN)) == b""


def test_a_source_follows_its_writer_from_life_to_life() -> None:
    """Also over a segment without a frame, which the next life replaces under the same name."""
    disk, past, rng = SimulatedDisk(), Past(), random.Random(8)
    source = Source(disk, AOF, UUID, Position(0, 0, 1, segment.HEADER_BYTES, 0))
    read = b""
    for number in range(6):
        life = Life(disk, past)
        for _ in range(rng.randint(0, 30)):
            life.add(rng.randint(1, 3), rng.choice((0, 100, 700)))
            good = life.log.good(WRITTEN)
            lag = source.lag_bytes(good)
            while rng.random() < 0.5 and (piece := source.read(rng.randint(1, 2000), good)):
                read += piece
                lag -= len(piece)
            if source.in_newest(good):
                assert lag == source.lag_bytes(good) == good[1] - source.offset
        life.log.close()
        life.held.close()
        past.fsynced = past.written = len(past.units)
        if number % 2:
            info = segments(disk, AOF, UUID)[-1]
            scan = Scan(disk, info)
            for _ in scan.tuples():
                pass
            empty = segment.SegmentHeader(
                UUID, 999, scan.lsn, 0, segment.End(*scan.position[:1], scan.offset, scan.crc)
            )
            file = disk.create(AOF / segment.file_name(scan.lsn))
            file.write(0, empty.pack())
            file.fsync()
            disk.sync_directory(AOF)
    good = life.log.good(WRITTEN)
    while piece := source.read(999, good):
        read += piece
    assert b"".join(frames_in(read)) == read
    last = batches(read)[-1]
    assert last.last == life.log.written_lsn and last.crc == life.log._chain


def test_a_source_whose_segment_is_released_says_so() -> None:
    leader = leader_of_two_lives()
    good = leader.life.log.good(WRITTEN)
    fresh, begun, in_second = leader.source(), leader.source(), leader.source()
    assert begun.read(10, good)
    second = int(segment_paths(leader.disk, AOF)[1].stem)
    while in_second.segment != second:
        assert in_second.read(1 << 20, good)
    release(leader.disk, AOF, good[0] - 1, keep_bytes=0)
    with pytest.raises(Vanished):
        fresh.read(10, good)
    # its first segment is still open, but where that one ends is no longer known
    with pytest.raises(Vanished):
        while begun.read(10, good):
            pass
    with pytest.raises(Vanished):
        while in_second.read(10, good):
            pass


def test_an_older_answer_of_good_is_harmless() -> None:
    leader = Leader(4)
    leader.fill(2, random.Random(4))
    old = leader.life.log.good(WRITTEN)
    leader.fill(40, random.Random(5))
    source = leader.source()
    while source.read(1000, leader.life.log.good(WRITTEN)):
        pass
    assert source.segment > old[0]
    assert source.read(1000, old) == b"" and source.lag_bytes(old) == 0


def test_good_is_consistent_beside_a_writer(tmp_path: Path) -> None:
    """A thread ships while another one writes, with small segments on a real disk."""
    opened = Opened(tmp_path, segment_bytes=20_000, chunk_bytes_min=4096, chunk_bytes_max=16384)
    opened.disk.background = True
    done = threading.Event()

    def write() -> None:
        for number in range(4000):
            opened.add(1, number % 90)
        done.set()

    writer = threading.Thread(target=write)
    source = Source(opened.disk, tmp_path / "aof", UUID, opened.recovered.position)
    read: list[bytes] = []
    writer.start()
    while True:
        finished = done.is_set()
        piece = source.read(64 << 10, opened.log.good(WRITTEN))
        read.append(piece)
        if finished and not piece:
            break
    writer.join()
    assert batches(b"".join(read), nbytes_max=1 << 20)[-1].last == opened.log.written_lsn == 4001
    assert len(opened.names()) > 10
    source.close()
    opened.close()
