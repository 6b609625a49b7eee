"""Headers and names of segments that are wrong: what the neighbours prove is made good, and nothing else."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from tests.tools.made import T0, UUID, Made, orders

from tidelog.aof import segment
from tidelog.aof.reading.reader import read_header
from tidelog.aof.segment import HEADER_BYTES, End, SegmentHeader
from tidelog.disk.real import RealDisk
from tidelog.engine.effects import effect as e
from tidelog.tools.repair.mended import MendedFiles


@pytest.fixture
def three(tmp_path: Path) -> Made:
    """Three segments: the second goes on with the first life, the third begins a life."""
    made = Made(tmp_path / "db")
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    made.unit(T0 + 5, (e.SET, 0, b"k", b"1", -1))
    made.roll(T0 + 9)
    made.unit(T0 + 10, (e.SET, 0, b"k", b"2", -1))
    made.unit(T0 + 20, (e.SET, 0, b"k", b"3", -1))
    made.roll(T0 + 29, incarnation=0xB2)
    made.unit(T0 + 30, (e.EPOCH, 2, 0xB2))
    made.write()
    return made


def mended(made: Made, number: int) -> tuple[SegmentHeader | None, str]:
    """The header that a repair takes for that of a segment, and its words."""
    files = MendedFiles(made.root)
    headers = files.headers()[1]
    (words,) = [mend.words for mend in files.mends]
    fields = [header.fields for header in headers if header.path == made.path(number)]
    return fields[0], words


@pytest.mark.parametrize("number", range(3))
def test_any_changed_byte_is_made_good(three: Made, number: int) -> None:
    right = read_header(RealDisk(), three.path(number))
    before = three.path(number).read_bytes()
    for offset in range(HEADER_BYTES):
        three.flip(offset, number)
        assert mended(three, number)[0] == right, f"byte {offset}"
        three.path(number).write_bytes(before)


@pytest.mark.parametrize("number", range(3))
def test_any_zeroed_stretch_is_made_good(three: Made, number: int) -> None:
    """If the checksum and the time are both gone, the time is that of the first frame."""
    right = read_header(RealDisk(), three.path(number))
    before = three.path(number).read_bytes()
    for start, stop in itertools.combinations((0, 8, 16, 32, 48, 56, 64, 72, 80), 2):
        data = bytearray(before)
        data[start:stop] = bytes(stop - start)
        if bytes(data) == before:
            continue  # zeros were there
        three.path(number).write_bytes(data)
        found, words = mended(three, number)
        assert found is not None
        if start <= 48 and stop == HEADER_BYTES:
            assert "its time, which is that of its first frame" in words
            assert right.time <= found.time <= right.time + 1
            found = found._replace(time=right.time)
        elif stop == HEADER_BYTES and start < 72:
            assert (
                "which stands in it" in words or words == "only the header's checksum was damaged"
            )
        assert found == right, f"bytes {start} to {stop}"


def test_random_damage_never_makes_another_header(three: Made) -> None:
    rng = random.Random(5)
    before = three.path(1).read_bytes()
    right = read_header(RealDisk(), three.path(1))
    for _ in range(40):
        data = bytearray(before)
        for _ in range(rng.randint(1, 20)):
            data[rng.randrange(HEADER_BYTES)] = rng.randrange(256)
        three.path(1).write_bytes(data)
        if bytes(data) == before:
            continue
        found, words = mended(three, 1)
        assert found is not None
        if "its time" in words:
            found = found._replace(time=right.time)
        assert found == right


def test_without_its_first_frame_a_header_is_not_proven(three: Made) -> None:
    three.flip(3, 1)
    three.flip(HEADER_BYTES + 10, 1)
    files = MendedFiles(three.root)
    assert [header.fields is None for header in files.headers()[1]] == [False, True, False]
    assert files.mends == []


def test_a_header_that_no_neighbour_proves_is_left_alone(three: Made) -> None:
    """The first segment was released: its end, which the second one states, is known to nobody."""
    three.path(0).unlink()
    data = three.path(1).read_bytes()
    three.path(1).write_bytes(bytes(HEADER_BYTES) + data[HEADER_BYTES:])
    files = MendedFiles(three.root)
    assert files.headers()[1][0].fields is None and files.mends == []


def test_the_role_of_a_follower_is_kept(three: Made) -> None:
    right = read_header(RealDisk(), three.path(1))
    right = right._replace(role=segment.FOLLOWER, incarnation=0xF0)
    data = bytearray(three.path(1).read_bytes())
    data[:HEADER_BYTES] = right.pack()
    for damaged in (50, 20, 33):
        data[damaged] ^= 1
        three.path(1).write_bytes(data)
        if damaged == 33:  # nothing else states a follower's incarnation
            assert MendedFiles(three.root).headers()[1][1].fields is None
        else:
            assert mended(three, 1)[0] == right
        data[damaged] ^= 1


def test_segments_under_each_others_names(three: Made) -> None:
    first, last = three.path(0).read_bytes(), three.path(2).read_bytes()
    three.path(0).write_bytes(last)
    three.path(2).write_bytes(first)
    files = MendedFiles(three.root)
    found = files.headers()[1]
    assert [header.first_lsn for header in found] == [1, 3, 5]
    assert [header.path for header in found] == [three.path(2), three.path(1), three.path(0)]
    assert [frame.lsn for frame in (item for _, item in files.frames_past_damage())] == [  # type: ignore[union-attr]
        1,
        2,
        3,
        4,
        5,
    ]


@pytest.mark.parametrize("number", range(3))
def test_a_damaged_header_under_a_wrong_name(three: Made, number: int) -> None:
    """The first frame says where the segment belongs."""
    right = read_header(RealDisk(), three.path(number))
    three.flip(20, number)
    path = three.path(number)
    wrong = path.rename(path.with_name(segment.file_name(77)))
    files = MendedFiles(three.root)
    headers = files.headers()[1]
    assert [header.first_lsn for header in headers] == [1, 3, 5]
    assert (headers[number].path, headers[number].fields) == (wrong, right)
    (mend,) = files.mends
    assert mend.rebuilt and mend.place == path
    assert mend.words.endswith(f"; the file is the segment {path.name}")


@pytest.mark.parametrize("damaged", [(0,), (2,), (0, 2), (0, 1, 2)])
def test_damaged_headers_under_each_others_names(three: Made, damaged: tuple[int, ...]) -> None:
    right = [read_header(RealDisk(), path) for path in three.paths()]
    for number in damaged:
        three.flip(41, number)
    first, last = three.path(0).read_bytes(), three.path(2).read_bytes()
    three.path(0).write_bytes(last)
    three.path(2).write_bytes(first)
    found = MendedFiles(three.root).headers()[1]
    assert [header.path for header in found] == [three.path(2), three.path(1), three.path(0)]
    assert [header.fields for header in found] == right


def test_a_copy_with_a_damaged_header_is_no_second_segment(three: Made) -> None:
    copy = three.path(1).with_name(segment.file_name(4))
    copy.write_bytes(bytes(8) + three.path(1).read_bytes()[8:])
    files = MendedFiles(three.root)
    assert [header.path for header in files.headers()[1]] == three.paths()
    assert [(mend.path, mend.fields) for mend in files.mends] == [(copy, None)]


def test_an_interrupted_renaming_is_seen(three: Made) -> None:
    path = three.path(1)
    path.rename(path.with_name(path.name + ".misplaced"))
    files = MendedFiles(three.root)
    assert [header.first_lsn for header in files.headers()[1]] == [1, 3, 5]
    assert [mend.place for mend in files.mends] == [path]


def test_a_file_too_many_is_left_out_if_nothing_is_missing(three: Made) -> None:
    other = SegmentHeader(bytes(16), 1, 4, T0, End(3, 100, 7))
    extra = three.path(1).with_name(segment.file_name(4))
    extra.write_bytes(other.pack())
    files = MendedFiles(three.root)
    assert [header.path for header in files.headers()[1]] == three.paths()
    assert [(mend.path, mend.fields) for mend in files.mends] == [(extra, None)]


def test_a_file_too_many_stays_damage_if_records_are_missing(three: Made) -> None:
    three.cut(three.path(1).stat().st_size - 9, 1)
    extra = three.path(1).with_name(segment.file_name(4))
    extra.write_bytes(SegmentHeader(bytes(16), 1, 4, T0, End(3, 100, 7)).pack())
    files = MendedFiles(three.root)
    assert [header.fault is None for header in files.headers()[1]] == [True, True, False, True]


def test_a_store_file_of_another_store_is_found_out(tmp_path: Path) -> None:
    made = orders(tmp_path / "orders-data")
    path = made.root / "STORE"
    path.write_bytes(orders(tmp_path / "same").root.joinpath("STORE").read_bytes())
    assert MendedFiles(made.root).store is None
    from_elsewhere = Made(tmp_path / "other")
    from_elsewhere.roll(T0)
    from_elsewhere.write()
    text = path.read_bytes()
    path.write_bytes(text.replace(UUID.hex().encode(), bytes(16).hex().encode()))
    files = MendedFiles(made.root)
    assert files.store is not None and files.uuid == UUID


def test_one_foreign_segment_does_not_outvote_store_and_durable(three: Made) -> None:
    three.promise(5, incarnation=0xB2)
    for path in three.paths():
        path.unlink()
    three.path(0).write_bytes(SegmentHeader(bytes(16), 1, 1, T0, End(0, 0, 0)).pack())
    files = MendedFiles(three.root)
    assert (files.store, files.uuid) == (None, UUID)
