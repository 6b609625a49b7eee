"""The table of verdicts: every case has one row, and every row is what the decoder says."""

import itertools

import msgpack
import pytest
from tests.aof.world import ROOT, Life, Past, read_back

from tidelog.aof import durable, frame, segment
from tidelog.aof.errors import CorruptFrame, MissingSegment
from tidelog.aof.log import FSYNCED
from tidelog.aof.reading.reader import Scan, segments
from tidelog.aof.reading.verdicts import VERDICTS, Found, Verdict, judge
from tidelog.aof.reading.window import Windows
from tidelog.crash.logs import UUID
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.crc32c import crc32c_of

AOF = ROOT / "aof"
FIRST = AOF / f"{1:020d}.aof"


def test_every_case_has_one_verdict() -> None:
    cases = list(itertools.product(Found, (False, True), (False, True)))
    for case in cases:
        assert sum(row.matches(*case) for row in VERDICTS) == 1, case
    for row in VERDICTS:
        assert any(row.matches(*case) for case in cases), row


def test_only_the_last_segment_can_be_torn_and_nothing_promised_is() -> None:
    for found, last, promised in itertools.product(Found, (False, True), (False, True)):
        if judge(found, last, promised) is Verdict.TORN:
            assert last and not promised
        if promised:
            assert judge(found, last, promised) in (Verdict.FRAME, Verdict.CORRUPT)


class Damaged:
    """One life with five frames in one segment (EPOCH and four units), not closed; then the damage."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        life = Life(self.disk, Past())
        for _ in range(4):
            life.add(1, 20)
        self.disk.kill()
        scan = self.scan()
        self.frames = list(scan.frames())
        self.end = scan.offset
        assert len(self.frames) == 5 and scan.verdict is Verdict.END

    def scan(self) -> Scan:
        (info,) = segments(self.disk, AOF, UUID)
        return Scan(self.disk, info, durable.read(self.disk, AOF, UUID))

    def judged(self) -> Scan:
        scan = self.scan()
        for _ in scan.frames():
            pass
        return scan

    def write(self, offset: int, data: bytes) -> None:
        self.disk.open(FIRST, write=True).write(offset, data)

    def promise(self, incarnation: int, lsn: int) -> None:
        slot = durable.pack(UUID, incarnation, lsn)
        self.disk.open(AOF / "DURABLE", write=True).write(4096, slot)


def test_zeros_are_the_end() -> None:
    damaged = Damaged()
    damaged.write(damaged.frames[3].offset, bytes(damaged.end - damaged.frames[3].offset))
    scan = damaged.judged()
    assert (scan.verdict, scan.lsn) == (Verdict.END, 4)


def test_zeros_where_durable_proves_records() -> None:
    damaged = Damaged()
    damaged.write(damaged.frames[3].offset, bytes(damaged.end - damaged.frames[3].offset))
    damaged.promise(1, 3)
    assert damaged.judged().verdict is Verdict.END
    damaged.promise(1, 4)
    scan = damaged.judged()
    assert scan.verdict is Verdict.CORRUPT
    error = scan.error()
    assert isinstance(error, CorruptFrame)
    assert (error.offset, error.expected_lsn, error.found_lsn) == (scan.offset, 4, None)
    assert f"{FIRST}, byte {scan.offset}" in str(error) and "tidelog repair" in str(error)


def test_durable_of_another_life_proves_nothing_here() -> None:
    damaged = Damaged()
    damaged.write(damaged.frames[3].offset, b"x")
    damaged.promise(7, 4)
    assert damaged.judged().verdict is Verdict.TORN


def test_a_hole_before_a_whole_frame_is_torn() -> None:
    damaged = Damaged()
    hole = damaged.frames[2]
    damaged.write(hole.offset, bytes(48 + len(hole.body)))
    scan = damaged.judged()
    assert (scan.verdict, scan.lsn, scan.offset) == (Verdict.TORN, 3, hole.offset)
    assert [frame.lsn for _, frame in scan.later_headers(scan.offset)] == [4, 5]


@pytest.mark.parametrize("role", [1, 2])
def test_a_later_frame_that_knew_of_a_sync_is_proof_if_it_is_our_own(role: int) -> None:
    disk = SimulatedDisk()
    life = Life(disk, Past())
    for _ in range(3):
        life.add(1, 20)
    life.wait(FSYNCED)
    life.add(1, 20)
    disk.kill()
    disk.unlink(AOF / "DURABLE")
    (info,) = segments(disk, AOF, UUID)
    file = disk.open(FIRST, write=True)
    file.write(0, info.header._replace(role=role).pack())
    frames = list(Scan(disk, info).frames())
    assert frames[-1].synced == 4
    file.write(frames[2].offset + 50, b"x")
    (info,) = segments(disk, AOF, UUID)
    scan = Scan(disk, info)
    assert len(list(scan.frames())) == 2
    assert scan.verdict is (Verdict.CORRUPT if role == 1 else Verdict.TORN)


def test_a_frame_that_does_not_follow_is_foreign() -> None:
    damaged = Damaged()
    second, third = damaged.frames[1], damaged.frames[2]
    content = damaged.disk.open(FIRST).pread(damaged.end, 0)
    damaged.write(second.offset, content[third.offset :] + bytes(third.offset - second.offset))
    scan = damaged.judged()
    assert (scan.verdict, scan.lsn, scan.found_lsn) == (Verdict.CORRUPT, 2, 3)
    assert "(LSN 2 expected, 3 found)" in str(scan.error())


@pytest.mark.parametrize("prev", [0, 1, None])
def test_a_frame_of_another_history_is_foreign(prev: int | None) -> None:
    """The right LSN and whole checksums, and the checksum of another frame before it: it is not believed."""
    damaged = Damaged()
    third, fourth = damaged.frames[2], damaged.frames[3]
    before = damaged.frames[0].crc if prev is None else prev
    spliced = frame.pack(4, 1, third.now, 0, before, fourth.body, crc32c_of(UUID))
    damaged.write(fourth.offset, spliced)
    scan = damaged.scan()
    assert [found.lsn for found in scan.frames()] == [1, 2, 3]
    assert (scan.verdict, scan.found, scan.offset) == (
        Verdict.CORRUPT,
        Found.FOREIGN,
        fourth.offset,
    )
    damaged.write(fourth.offset, frame.pack(4, 1, 0, 0, third.crc, fourth.body, crc32c_of(UUID)))
    assert [found.lsn for found in damaged.scan().frames()] == [1, 2, 3, 4]


def test_a_frame_that_leaves_out_an_lsn_is_foreign() -> None:
    """Whole checksums and the right frame before it, and another LSN than the next."""
    damaged = Damaged()
    third, fourth = damaged.frames[2], damaged.frames[3]
    damaged.write(fourth.offset, frame.pack(5, 1, 0, 0, third.crc, fourth.body, crc32c_of(UUID)))
    scan = damaged.judged()
    assert (scan.verdict, scan.lsn, scan.found_lsn) == (Verdict.CORRUPT, 4, 5)


def test_a_frame_that_ends_in_the_middle_of_a_unit_is_refused() -> None:
    damaged = Damaged()
    third, fourth = damaged.frames[2], damaged.frames[3]
    body = msgpack.packb((2, 3, 0, b""))  # a record that is not marked as the last of its unit
    content = frame.pack(4, 1, third.now, 0, third.crc, body, crc32c_of(UUID))
    damaged.write(fourth.offset, content + bytes(damaged.end - fourth.offset))
    with pytest.raises(CorruptFrame, match="cannot be decoded"):
        read_back(damaged.disk)


def test_a_segment_of_another_history_is_not_read_on_into() -> None:
    """A chain that is broken at a whole frame is refused, and nothing behind it is applied."""
    damaged = Damaged()
    third, fourth = damaged.frames[2], damaged.frames[3]
    content = frame.pack(4, 1, third.now, 0, 7, fourth.body, crc32c_of(UUID))
    damaged.write(fourth.offset, content)
    with pytest.raises(CorruptFrame, match="does not follow"):
        read_back(damaged.disk)


def test_the_frames_of_another_store_are_no_frames() -> None:
    """Messages may contain anything, images of frames with fitting numbers too."""
    damaged = Damaged()
    third = damaged.frames[2]
    fake = frame.pack(4, 1, 0, 3, 0, b"\x90", crc32c_of(b"another store's"))
    damaged.write(third.offset, b"broken" + fake)
    assert damaged.judged().verdict is Verdict.TORN


def test_damage_in_a_segment_that_is_not_the_last() -> None:
    disk, past = SimulatedDisk(), Past()
    for _ in range(2):
        life = Life(disk, past)
        life.add(3, 20)
        life.close()
    first, second = segments(disk, AOF, UUID)
    assert first.end == second.header.before

    def judged() -> Scan:
        scan = Scan(disk, segments(disk, AOF, UUID)[0])
        for _ in scan.frames():
            pass
        return scan

    assert judged().verdict is Verdict.END
    assert first.end is not None
    file = disk.open(first.path, write=True)
    file.write(first.end.offset, b"whatever lies behind the end means nothing")
    assert judged().verdict is Verdict.END
    file.write(first.end.offset - 1, b"\0")
    assert isinstance(judged().error(), CorruptFrame)
    file.truncate(132)
    assert isinstance(judged().error(), MissingSegment)


@pytest.mark.timeout(30)
def test_a_segment_that_became_shorter_behind_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size that the scan knows is then too large: a frame that is cut must not be looked for again and again."""
    at = Windows.at
    for size in range(segment.HEADER_BYTES, Damaged().end):
        damaged = Damaged()

        def cut(
            windows: Windows, offset: int, nbytes: int = 1, size: int = size
        ) -> tuple[bytes, int]:
            damaged.disk.open(FIRST, write=True).truncate(size)
            return at(windows, offset, nbytes)

        with monkeypatch.context() as patched:
            patched.setattr(Windows, "at", cut)
            scan = damaged.judged()
        whole = [frame for frame in damaged.frames if behind(frame) <= size]
        assert (scan.lsn, scan.size) == (whole[-1].lsn + 1 if whole else 1, size)
        edge = behind(whole[-1]) if whole else segment.HEADER_BYTES
        assert scan.verdict is (Verdict.END if edge == size else Verdict.TORN)


def behind(each: frame.Frame) -> int:
    """The offset behind a frame."""
    return each.offset + frame.HEADER_BYTES + len(each.body)
