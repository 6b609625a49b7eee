"""Feed and intake against damaged, doubled, missing and invented bytes, in whatever pieces they come."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.replication.shipped import UUID, End, Shipped
from tests.rounds import some_and_all

from tidelog.aof.errors import AofError, BadFrame, NewerFrame
from tidelog.replication.errors import FaultFound, ProtocolError, ReplicationError
from tidelog.replication.feed import Feed
from tidelog.replication.intake import Intake
from tidelog.replication.protocol import (
    Ack,
    Beat,
    Bye,
    Data,
    Fault,
    Frames,
    Message,
    Snapshot,
    Want,
)

LOG = Shipped([1, 2, 1, 1, 3])
Pieces = Iterator[bytes]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """`data` with one or two faults."""
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = rng.randrange(len(data) + 1)
        size = rng.choice((1, 1, 2, 4, 9, 30))
        match rng.randrange(7):
            case 0:
                data = data[:at] + data[at + size :]
            case 1:
                data = data[:at] + data[at : at + size] + data[at:]
            case 2:
                data = data[:at] + rng.randbytes(size) + data[at:]
            case 3:
                data = data[:at] + rng.randbytes(size) + data[at + size :]
            case 4:
                data = data[:at]
            case 5 if at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case _:
                data = data[:at] + bytes(size) + data[at + size :]
    return data


def shuffled(rng: random.Random, messages: list[Message]) -> list[Message]:
    """The messages of a side that has lost its place: one is missing, doubled, or comes at the wrong time."""
    at, to = rng.randrange(len(messages)), rng.randrange(len(messages))
    match rng.randrange(3):
        case 0:
            return messages[:at] + messages[at + 1 :]
        case 1:
            return [*messages[:to], messages[at], *messages[to:]]
        case _:
            rest = messages[:at] + messages[at + 1 :]
            return [*rest[:to], messages[at], *rest[to:]]


def leaders(rng: random.Random, start: int) -> bytes:
    """The bytes that a leader sends behind frame number `start`, with a fault or without."""
    log = b"".join(LOG.frames[start:])
    if rng.random() < 0.3:
        log = damaged(rng, log)  # the disk's fault: the messages around it are right
    messages: list[Message] = [Beat(1000, *LOG.ends[max(start - 1, 0)], 0)]
    while log:
        size = rng.choice((1, 40, 100, 1000))
        messages.append(Frames(log[:size]))
        log = log[size:]
        if rng.random() < 0.3:
            messages.append(Beat(1000 + len(messages), *LOG.end, rng.randint(0, LOG.end.lsn)))
    if rng.random() < 0.2:
        messages += [Snapshot(7, 7, 7, 7, bytes(32)), Data(2, 0, b"data")]
    if rng.random() < 0.2:
        messages.append(Bye("done"))
    return faulty(rng, messages, Ack(1, 1))


def followers(rng: random.Random) -> bytes:
    messages: list[Message] = [
        Want(rng.choice((1, 2)), rng.randrange(1 << 40))
        if rng.random() < 0.2
        else Ack(lsn, rng.randint(0, lsn) if rng.random() < 0.3 else 0)
        for lsn in range(1, rng.randint(2, 8))
    ]
    if rng.random() < 0.1:
        messages.append(Fault(3, "damaged"))
    return faulty(rng, messages, Bye("?"))


def faulty(rng: random.Random, messages: list[Message], stranger: Message) -> bytes:
    fault = rng.randrange(8)
    if fault == 0:
        return rng.randbytes(rng.randint(1, 200))
    if fault == 1:
        messages.insert(rng.randrange(len(messages) + 1), stranger)
    elif fault in (2, 3):
        messages = shuffled(rng, messages)
    data = b"".join(message.pack() for message in messages)
    return damaged(rng, data) if fault in (4, 5, 6) else data


def whole(data: bytes) -> Pieces:
    yield data


def single_bytes(data: bytes) -> Pieces:
    return (data[at : at + 1] for at in range(len(data)))


def random_pieces(rng: random.Random) -> Callable[[bytes], Pieces]:
    def pieces(data: bytes) -> Pieces:
        at = 0
        while at < len(data):
            size = rng.choice((1, 3, 50, 400))
            yield data[at : at + size]
            at += size

    return pieces


@dataclass
class Taken:
    """The result of an intake for a stream. `errors` has the first of each kind: in the messages, and in the frames."""

    log: bytes = b""
    records: int = 0
    others: list[Message] = field(default_factory=list)
    end: tuple[object, ...] = ()
    error: str = ""
    bad_frame: str = ""


def taken(pieces: Pieces, start: End) -> Taken:
    """Receive and take as a shell does. After a bad message, what came before it may still be taken."""
    intake, found = Intake(UUID, *start, 0.0), Taken()
    for piece in pieces:
        try:
            found.others += intake.receive(piece, 0.0)
        except ReplicationError as error:
            assert type(error) is ProtocolError
            found.error = str(error)
        try:
            while (batch := intake.take()) is not None:
                assert batch.first == start.lsn + found.records + 1
                found.log += batch.data
                found.records += len(batch.records)
        except AofError as error:
            assert type(error) in (BadFrame, NewerFrame)
            found.bad_frame = str(error)
        if found.error or found.bad_frame:
            break
    found.end = (intake.lsn, intake.crc, intake.beat, intake.bye, intake.buffered)
    return found


def told(pieces: Pieces) -> tuple[int, int, list[Want], str]:
    """The result of a feed for a stream."""
    feed = Feed(LOG, 5, 0.0)
    wanted: list[Want] = []
    for piece in pieces:
        try:
            wanted += feed.receive(piece, 0.0)
        except (ProtocolError, FaultFound) as error:
            return feed.acked_lsn, feed.fsynced_lsn, [], str(error)
    return feed.acked_lsn, feed.fsynced_lsn, wanted, ""


@pytest.mark.parametrize("inputs", some_and_all(1000, 50_000))
def test_intake(inputs: int) -> None:
    refused = 0
    for seed in range(inputs):
        rng = random.Random(seed)
        start = rng.randrange(len(LOG.frames))
        data = leaders(rng, start)
        end = LOG.ends[start - 1] if start else End(0, 0)
        once = taken(whole(data), end)
        said = f"seed {seed}"
        assert b"".join(LOG.frames[start:]).startswith(once.log), said
        for cut in (single_bytes if seed % 4 == 0 else random_pieces(rng),):
            pieces = taken(cut(data), end)
            assert (pieces.log, pieces.records) == (once.log, once.records), said
            if once.bad_frame:
                # In pieces, the bad frame may be seen before the bad message behind it.
                assert pieces.bad_frame == once.bad_frame, said
            else:
                assert pieces.error == once.error, said
                assert once.error or pieces == once, said
        refused += bool(once.error or once.bad_frame)
    assert inputs / 3 < refused < inputs


@pytest.mark.parametrize("inputs", some_and_all(1000, 50_000))
def test_feed(inputs: int) -> None:
    refused = 0
    for seed in range(inputs):
        rng = random.Random(seed)
        data = followers(rng)
        once = told(whole(data))
        acked, fsynced, _, error = once
        assert 0 <= fsynced <= acked <= 5
        for cut in (single_bytes, random_pieces(rng)):
            assert told(cut(data)) == once, f"seed {seed}"
        refused += bool(error)
    assert inputs / 3 < refused < inputs
