"""Received bytes become whole, checked frames, wherever they are cut; everything else is refused and named."""

from __future__ import annotations

import random
import struct

import msgpack
import pytest
from tests.aof.shipping import Leader, frames_in
from tests.aof.world import unit
from tests.rounds import rest_slow

from tidelog.aof import frame
from tidelog.aof.errors import AofError, BadFrame, NewerFrame
from tidelog.aof.frame import HEADER, HEADER_BYTES
from tidelog.aof.received import Batch, Frames
from tidelog.crash.logs import UUID, body_of
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.engine.effects.effect import END, EPOCH, Effect

SEED = crc32c_of(UUID)
UNKNOWN = 47  # an opcode that no record has


def history(seed: int = 1, units: int = 40) -> bytes:
    leader = Leader(seed)
    leader.fill(units, random.Random(seed))
    leader.restart()
    leader.fill(units, random.Random(seed + 1))
    data = leader.shipped()
    leader.life.close()
    return data


def made(*bodies: bytes, counts: tuple[int, ...] = ()) -> bytes:
    """Frames from the beginning of a log, one for each body."""
    data, lsn, prev = b"", 1, 0
    for body, count in zip(bodies, counts or (1,) * len(bodies)):
        one = frame.pack(lsn, count, 1000, 0, prev, body, SEED)
        prev = int.from_bytes(one[44:48], "little")
        lsn += count
        data += one
    return data


def taken(frames: Frames, nbytes_max: int = 1 << 20) -> tuple[list[Batch], AofError | None]:
    found = []
    try:
        while batch := frames.take(nbytes_max):
            found.append(batch)
    except (BadFrame, NewerFrame) as error:
        return found, error
    return found, None


def whole(data: bytes) -> tuple[list[Batch], AofError | None]:
    frames = Frames(UUID, 0, 0)
    frames.put(data)
    return taken(frames)


def test_a_batch_says_where_it_lies_in_the_log() -> None:
    data = history()
    (batch,), error = whole(data)
    parts = frames_in(data)
    first, last = HEADER.unpack_from(parts[0]), HEADER.unpack_from(parts[-1])
    assert error is None and batch.data == data
    assert (batch.first, batch.prev) == (first[2], 0) == (1, 0)
    assert (batch.last, batch.crc, batch.now) == (last[2] + last[3] - 1, last[8], last[4])
    assert body_of(batch.records) == b"".join(part[HEADER_BYTES:] for part in parts)
    assert len(batch.records) == batch.last


def test_batches_chain_and_respect_the_limit() -> None:
    data = history()
    frames = Frames(UUID, 0, 0)
    frames.put(data)
    found, error = taken(frames, nbytes_max=500)
    assert error is None and b"".join(batch.data for batch in found) == data and len(found) > 20
    lsn = crc = 0
    for batch in found:
        assert (batch.first, batch.prev) == (lsn + 1, crc)
        assert len(batch.data) <= 500 or len(frames_in(batch.data)) == 1
        lsn, crc = batch.last, batch.crc
    assert (frames.lsn, frames.crc, frames.buffered) == (lsn, crc, 0)


@pytest.mark.parametrize("seed", rest_slow(range(8), 2))
def test_the_cuts_do_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    data = history(seed, 12)
    (expected,), _ = whole(data)
    frames = Frames(UUID, 0, 0)
    records: list[Effect] = []
    joined, at = b"", 0
    longest = rng.choice((1, 3, 50, 3000))
    while at < len(data):
        step = rng.randint(0, longest)
        frames.put(data[at : at + step])
        at += step
        if rng.random() < 0.7:
            while batch := frames.take(rng.choice((1, 200, 100_000))):
                records += batch.records
                joined += batch.data
        assert frames.buffered == len(data[:at]) - len(joined)
    while batch := frames.take():
        records += batch.records
        joined += batch.data
    assert joined == data and records == expected.records


def test_reading_can_begin_behind_any_frame() -> None:
    data = history(units=5)
    parts = frames_in(data)
    for number, part in enumerate(parts):
        fields = HEADER.unpack_from(part)
        frames = Frames(UUID, fields[2] + fields[3] - 1, fields[8])
        frames.put(b"".join(parts[number + 1 :]))
        found, error = taken(frames)
        assert error is None and b"".join(b.data for b in found) == b"".join(parts[number + 1 :])


def test_every_flipped_bit_is_refused_behind_the_frames_before_it() -> None:
    data = history(units=4)
    parts = frames_in(data)
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << (at % 8)
        found, error = whole(bytes(bad))
        before, lsn = 0, 1
        for part in parts:
            if before + len(part) > at:
                break
            before += len(part)
            lsn += HEADER.unpack_from(part)[3]
        assert b"".join(batch.data for batch in found) == data[:before]
        assert isinstance(error, BadFrame) and error.lsn == lsn, f"byte {at}"


def test_missing_and_repeated_frames_are_refused() -> None:
    parts = frames_in(history(units=6))
    lsn = HEADER.unpack_from(parts[3])[2]
    for wrong in ([*parts[:3], *parts[4:]], [*parts[:3], *parts[2:]], [*parts[:3], *parts[:3]]):
        found, error = whole(b"".join(wrong))
        assert [batch.data for batch in found] == [b"".join(parts[:3])]
        assert isinstance(error, BadFrame) and error.lsn == lsn and "goes on with LSN" in str(error)


def test_a_refused_frame_stays_refused() -> None:
    frames = Frames(UUID, 0, 0)
    frames.put(made(body_of(unit(1, 1, 5)), b"not msgpack", body_of(unit(2, 1, 5))))
    batch = frames.take()
    assert batch is not None and batch.last == 1
    for _ in range(3):
        with pytest.raises(BadFrame, match="LSN 2"):
            frames.take()
        frames.put(b"more")


def test_frames_of_another_store_are_refused() -> None:
    frames = Frames(bytes(16), 0, 0)
    frames.put(history(units=1))
    with pytest.raises(BadFrame, match="no frame of this store"):
        frames.take()


GOOD = body_of(unit(1, 1, 3))
END_OF_NO_UNIT = msgpack.packb((2, 1, 0, b"x"))


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (GOOD, 2),
        (GOOD + GOOD, 1),
        (GOOD[:-1], 1),
        (GOOD + b"\x93", 1),
        (b"", 1),
        (msgpack.packb(66), 1),
        (msgpack.packb(b"B"), 1),
        (msgpack.packb(()), 1),
        (msgpack.packb((b"B", 1)), 1),
        (msgpack.packb((66.0, 1)), 1),
        (msgpack.packb({66: 1}), 1),
        (END_OF_NO_UNIT, 1),
        (GOOD + END_OF_NO_UNIT, 2),
        (b"\xdd\xff\xff\xff\xff", 1),
        (b"\x91" * 5000, 1),
    ],
)
def test_records_that_recovery_could_not_apply_are_refused(body: bytes, count: int) -> None:
    """Also between good frames, which are decoded together with them."""
    found, error = whole(made(GOOD, body, GOOD, counts=(1, count, 1)))
    assert [batch.last for batch in found] == [1]
    assert isinstance(error, BadFrame) and error.lsn == 2


def test_an_absurd_header_is_refused_before_its_records_come() -> None:
    head = frame.UNCHECKED.pack(frame.MAGIC, frame.BODY_BYTES_MAX + 1, 1, 1, 0, 0, 0, 0)
    frames = Frames(UUID, 0, 0)
    frames.put(head + struct.pack("<I", crc32c_after(SEED, head)))
    with pytest.raises(BadFrame, match="134217729 bytes"):
        frames.take()
    with pytest.raises(BadFrame, match="0 records"):
        whole_or_raise(frame.pack(1, 0, 0, 0, 0, b"", SEED))


def whole_or_raise(data: bytes) -> None:
    _, error = whole(data)
    if error is not None:
        raise error


@pytest.mark.parametrize("opcode", [UNKNOWN, UNKNOWN | END, 1000, -1])
def test_a_record_of_a_newer_tidelog_is_named(opcode: int) -> None:
    body = msgpack.packb((opcode, 1)) + body_of(unit(1, 1, 3))
    found, error = whole(made(GOOD, body, counts=(1, 2)))
    assert [batch.last for batch in found] == [1]
    assert isinstance(error, NewerFrame) and error.lsn == 2
    assert "newer tidelog wrote it" in str(error)


def test_an_epoch_is_a_record_as_any() -> None:
    (batch,), _ = whole(made(msgpack.packb((EPOCH | END, 1 << 32, 5)), GOOD))
    assert batch.records[0] == (EPOCH | END, 1 << 32, 5)
    assert batch.epochs
    (batch,), _ = whole(made(GOOD))
    assert not batch.epochs


def test_a_unit_may_have_several_records() -> None:
    """Only the last one of a frame must end a unit."""
    long_unit = END_OF_NO_UNIT + END_OF_NO_UNIT + GOOD
    (batch,), error = whole(made(GOOD, long_unit, GOOD, counts=(1, 3, 1)))
    assert (batch.last, error) == (5, None)
    (batch,), error = whole(made(long_unit, GOOD + END_OF_NO_UNIT, counts=(3, 2)))
    assert batch.last == 3
    assert isinstance(error, BadFrame) and "does not end a unit" in str(error)


def test_a_long_frame_in_small_pieces_is_not_copied_again_and_again() -> None:
    """Each piece costs the same: joining them before the frame is whole would be quadratic."""
    data = made(body_of([(66, 1, 0, bytes(20 << 20))]))
    frames = Frames(UUID, 0, 0)
    kept = []
    for at in range(0, len(data), 4096):
        frames.put(data[at : at + 4096])
        if batch := frames.take():
            kept.append(batch)
    assert [batch.data for batch in kept] == [data]
