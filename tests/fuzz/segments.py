"""Segments, frames and DURABLE with wrong fields whose checksums hold, with other bytes, or in another order.

Recovery reads every input, on a simulated disk. One in six is also a store on a real disk, for a command.
"""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.logs import INCARNATION, SEED, STORE, T0, UUID, bodies, packed
from tests.fuzz.outcome import REFUSED, TAKEN, Outcome
from tests.fuzz.shell import run_on
from tests.fuzz.twist import changed

from tidelog.aof import durable, frame, identity, segment
from tidelog.aof.errors import AofError
from tidelog.aof.reading.reader import Replay, Scan
from tidelog.aof.reading.recovery import recover, survey
from tidelog.aof.segment import End, SegmentHeader
from tidelog.disk.simulated import SimulatedDisk, Tree
from tidelog.engine.crc32c import crc32c, crc32c_after
from tidelog.engine.effects.effect import Effect

ROOT = Path("/db")
AOF = ROOT / identity.AOF
ON_DISK_EACH = 6
SEGMENTS = 3
COMMANDS = (
    ["aof", "ls"],
    ["aof", "ls", "--scan", "--json"],
    ["aof", "verify"],
    ["aof", "dump", "--past-damage"],
    ["aof", "dump", "--reverse"],
    ["aof", "stats", "--past-damage"],
    ["repair"],
    ["info"],
    ["why"],
)
# fields of the two headers, with the number of bytes of each
FRAME_FIELDS = ((0, 4), (4, 4), (8, 8), (16, 4), (20, 8), (28, 8), (36, 4), (40, 4))
SEGMENT_FIELDS = (
    (0, 8),
    (8, 4),
    (12, 4),
    (16, 16),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 4),
)


class Part(NamedTuple):
    """A segment of a sound log: its file, and where its frames begin."""

    name: str
    data: bytes
    frames: list[int]


@lru_cache(maxsize=64)
def sound(seed: int) -> list[Part]:
    """A log of a few segments."""
    frames = bodies(seed)
    size = -(-len(frames) // SEGMENTS)
    parts: list[Part] = []
    lsn, crc = 1, 0
    for at in range(0, len(frames), size):
        before = End(lsn - 1, len(parts[-1].data), crc) if parts else End(0, 0, 0)
        name = segment.file_name(lsn)
        data = bytearray(SegmentHeader(UUID, INCARNATION, lsn, T0, before).pack())
        offsets = []
        for body in frames[at : at + size]:
            offsets.append(len(data))
            count = len(body.records)
            made = frame.pack(lsn, count, body.now, lsn - 1, crc, packed(body.records), SEED)
            crc = frame.HEADER.unpack_from(made)[8]
            data += made
            lsn += count
        parts.append(Part(name, bytes(data), offsets))
    return parts


def odd_field(data: bytearray, at: int, nbytes: int, r: random.Random) -> None:
    """Write another number over a field."""
    value = int.from_bytes(data[at : at + nbytes], "little")
    choice = r.random()
    if choice < 0.4:
        value += r.choice((-2, -1, 1, 2))
    elif choice < 0.7:
        value = r.choice((0, 1, 47, 48, 1 << 20, (1 << 27) + 1, (1 << 31) - 1, (1 << 63) - 1))
    else:
        value = r.getrandbits(8 * nbytes)
    data[at : at + nbytes] = (value % (1 << 8 * nbytes)).to_bytes(nbytes, "little")


def other_frame(part: Part, r: random.Random) -> bytes:
    """The segment with one frame changed, whose checksums are right. Those behind it may be chained to it."""
    data = bytearray(part.data)
    number = r.randrange(len(part.frames))
    at = part.frames[number]
    end = part.frames[number + 1] if number + 1 < len(part.frames) else len(data)
    if r.random() < 0.4:
        body = changed(bytes(data[at + 48 : end]), r, 0, end - at - 48)
        data[at + 4 : at + 8] = len(body).to_bytes(4, "little")
        data[at + 48 : end] = body
        end = at + 48 + len(body)
        data[at + 40 : at + 44] = crc32c(body).to_bytes(4, "little")
    for _ in range(r.choice((0, 1, 1, 2))):
        odd_field(data, at + (field := r.choice(FRAME_FIELDS))[0], field[1], r)
    chained = r.random() < 0.6
    while True:
        own = crc32c_after(SEED, bytes(data[at : at + 44]))
        data[at + 44 : at + 48] = own.to_bytes(4, "little")
        if not chained or end + 48 > len(data):
            return bytes(data)
        at = end
        end = at + 48 + int.from_bytes(data[at + 4 : at + 8], "little")
        data[at + 36 : at + 40] = own.to_bytes(4, "little")


def other_header(part: Part, r: random.Random) -> bytes:
    data = bytearray(part.data)
    for _ in range(r.choice((1, 1, 2))):
        at, nbytes = r.choice(SEGMENT_FIELDS)
        odd_field(data, at, nbytes, r)
    data[76:80] = crc32c(bytes(data[:76])).to_bytes(4, "little")
    return bytes(data)


def damaged(parts: list[Part], r: random.Random) -> dict[str, bytes]:
    """The files of aof/ after one or two faults."""
    files = {part.name: part.data for part in parts}
    for _ in range(r.choice((1, 1, 1, 2))):
        part = r.choice(parts)
        choice = r.random()
        if choice < 0.45:
            files[part.name] = other_frame(part, r)
        elif choice < 0.6:
            files[part.name] = other_header(part, r)
        elif choice < 0.7:
            files[part.name] = changed(part.data, r, 0, len(part.data))
        elif choice < 0.76:
            files[part.name] = part.data[: r.randrange(len(part.data))]
        elif choice < 0.82:
            files[part.name] = part.data + bytes(r.randrange(4096))
        elif choice < 0.86:
            files.pop(part.name, None)
        elif choice < 0.9:
            files[segment.file_name(r.choice((0, 1, 2, 5, 10**19)))] = part.data
        elif choice < 0.94:
            files[part.name] = r.choice(parts).data
        else:
            lsn = r.choice((0, 1, 5, 1000, (1 << 64) - 1))
            slot = durable.pack(UUID, r.choice((INCARNATION, 7)), lsn)
            files[durable.NAME] = slot.ljust(durable.FILE_BYTES, b"\0")
    if durable.NAME not in files and r.random() < 0.5:
        files[durable.NAME] = bytes(durable.FILE_BYTES)
    return files


def recovered(files: dict[str, bytes]) -> bool:
    """Recover the files. Returns whether they were taken."""
    tree: Tree = {str(ROOT): None, str(ROOT / identity.NAME): STORE, str(AOF): None}
    tree |= {str(AOF / name): data for name, data in files.items()}
    records: list[Effect] = []
    try:
        disk = SimulatedDisk.of(tree)
        looked_at(disk)
        recover(disk, ROOT, UUID, records.extend)
    except AofError as error:
        assert "\n" not in str(error), error
        return False
    return True


def looked_at(disk: SimulatedDisk) -> None:
    """Read it as a tool does, which skims the frames of every segment before it reads them."""
    promises, found = survey(disk, AOF, UUID, released=True)
    for info in found:
        scan = Scan(disk, info, promises)
        while scan.skim(512):
            pass
        scan.close()
        Replay(lambda records: None).run(info.path, Scan(disk, info, promises).tuples())


def one(seed: int, r: random.Random, place: Path) -> Outcome:
    files = damaged(sound(seed), r)
    outcome = TAKEN if recovered(files) else REFUSED
    if not r.randrange(ON_DISK_EACH):
        run_on(place, files, r.choice(COMMANDS))
    return outcome
