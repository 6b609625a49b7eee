"""A snapshot goes from a leader's offer to a follower's fetch, in any pieces. Wrong bytes end it with one line."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.replication.test_fuzz import damaged, shuffled
from tests.rounds import new_seeds, rest_slow, some_and_all

from tidelog.replication.errors import ProtocolError
from tidelog.replication.fetch import FULL_BYTES, Fetch
from tidelog.replication.offer import PIECE_BYTES, Offer
from tidelog.replication.protocol import (
    DATA_FILE,
    FROM_LEADER,
    MANIFEST_FILE,
    SLICE_BYTES_MAX,
    Ack,
    Beat,
    Bye,
    Data,
    Frames,
    Message,
    Messages,
    Snapshot,
    Want,
)

FILES = {
    MANIFEST_FILE: random.Random(1).randbytes(3000),
    DATA_FILE: random.Random(2).randbytes(300_000),
}
OFFERED = Snapshot(4711, 5, len(FILES[MANIFEST_FILE]), len(FILES[DATA_FILE]), bytes(32))
MORE = 1 << 20


class Pair:
    """Both sides. `turn` moves what each has to send, in pieces of any size."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.offer, self.fetch = Offer(self.now), Fetch(self.now)

    def deliver(self, data: bytes, receive: Callable[[bytes, float], None]) -> None:
        while data:
            size = self.rng.choice((1, 7, 500, 100_000))
            receive(data[:size], self.now)
            data = data[size:]

    def turn(self, room: int = MORE) -> None:
        need = self.offer.need()
        if need is not None:
            data = FILES[need.file][need.offset : need.offset + need.nbytes]
            self.offer.put(need, data)
        sent = self.offer.send(self.now, 1000, (9, 9), 9, room)
        self.deliver(sent, self.fetch.receive)

    def want(self, file: int, offset: int) -> None:
        self.deliver(self.fetch.want(file, offset), self.offer.receive)

    def read(self, file: int, offset: int, nbytes: int) -> bytes:
        if not self.fetch.wanted(file, offset):
            self.want(file, offset)
        for _ in range(1000):
            found = self.fetch.take(file, offset, nbytes)
            if found is not None:
                return found
            self.turn(self.rng.choice((100, 70_000, MORE)))
        raise AssertionError("it does not come")


def offered(seed: int) -> Pair:
    pair = Pair(random.Random(seed))
    pair.turn()
    assert pair.fetch.snapshot is None and pair.fetch.last_lsn == 9
    pair.offer.offered(OFFERED)
    pair.turn()
    assert pair.fetch.snapshot == OFFERED
    return pair


@pytest.mark.parametrize("seed", rest_slow(range(20), 5))
def test_any_parts_of_both_files(seed: int) -> None:
    pair = offered(seed)
    for _ in range(20):
        file = pair.rng.choice(list(FILES))
        size = len(FILES[file])
        at = pair.rng.randrange(size)
        for _ in range(pair.rng.randint(1, 4)):
            nbytes = pair.rng.randint(0, min(size - at, 100_000))
            assert pair.read(file, at, nbytes) == FILES[file][at : at + nbytes]
            at += nbytes


def test_what_was_read_for_an_earlier_wish_is_dropped() -> None:
    pair = offered(1)
    pair.want(DATA_FILE, 0)
    need = pair.offer.need()
    assert need == (DATA_FILE, 0, len(FILES[DATA_FILE]))
    pair.want(MANIFEST_FILE, 7)
    pair.offer.put(need, FILES[DATA_FILE])
    assert pair.read(MANIFEST_FILE, 7, 100) == FILES[MANIFEST_FILE][7:107]


def test_a_wish_before_the_offer_and_beyond_the_end() -> None:
    offer = Offer(0)
    with pytest.raises(ProtocolError, match="before it was offered"):
        offer.receive(Want(DATA_FILE, 0).pack(), 0)
    pair = offered(2)
    pair.offer.receive(Want(DATA_FILE, OFFERED.data_bytes).pack(), 0)
    assert pair.offer.need() is None
    with pytest.raises(ProtocolError, match="wants byte"):
        pair.offer.receive(Want(DATA_FILE, OFFERED.data_bytes + 1).pack(), 0)


def test_signs_of_life() -> None:
    pair = offered(3)
    assert pair.offer.send(0.5, 1, (9, 9), 9, MORE) == b""
    assert pair.offer.send(1.5, 1, (9, 9), 9, MORE) == Beat(1, 9, 9, 9).pack()
    assert pair.fetch.ack(7, 9, 10.0) == Ack(7, 7).pack()
    assert pair.fetch.ack(7, 7, 10.5) == b"" and pair.fetch.ack(7, 7, 11.0) == Ack(7, 7).pack()
    pair.offer.receive(Ack(7, 7).pack(), 11.0)
    assert not pair.offer.overdue(12, 5) and pair.offer.overdue(17, 5)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Frames(b"x")], "sends its log"),
        ([OFFERED, OFFERED], "two snapshots"),
        ([Data(DATA_FILE, 0, b"x")], "not wanted"),
        ([OFFERED._replace(manifest_bytes=1 << 40)], "without content"),
        ([OFFERED._replace(lsn=0)], "without content"),
        ([Bye("enough"), OFFERED], "behind its BYE"),
    ],
)
def test_what_a_leader_must_not_send(messages: list[Message], said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        Fetch(0).receive(b"".join(each.pack() for each in messages), 0)


def test_data_out_of_order() -> None:
    fetch = Fetch(0)
    fetch.receive(OFFERED.pack(), 0)
    fetch.want(DATA_FILE, 100)
    with pytest.raises(ProtocolError, match="instead of byte 100"):
        fetch.receive(Data(DATA_FILE, 101, b"x").pack(), 0)


def test_stray_data_without_end() -> None:
    fetch = Fetch(0)
    fetch.receive(OFFERED.pack(), 0)
    fetch.want(MANIFEST_FILE, 0)
    fetch.want(DATA_FILE, 0)
    stray = Data(MANIFEST_FILE, 0, bytes(1000)).pack()
    fetch.receive(stray * 3, 0)
    with pytest.raises(ProtocolError, match="instead of byte 0"):
        fetch.receive(stray, 0)


def test_more_than_was_offered() -> None:
    fetch = Fetch(0)
    fetch.receive(OFFERED.pack(), 0)
    fetch.want(MANIFEST_FILE, 2999)
    with pytest.raises(ProtocolError, match="more than the 3000 bytes"):
        fetch.receive(Data(MANIFEST_FILE, 2999, b"xy").pack(), 0)


def test_a_fetch_that_nobody_takes_from_is_full() -> None:
    fetch = Fetch(0)
    fetch.receive(OFFERED._replace(data_bytes=1 << 40).pack(), 0)
    fetch.want(DATA_FILE, 0)
    at = 0
    while not fetch.full:
        fetch.receive(Data(DATA_FILE, at, bytes(SLICE_BYTES_MAX)).pack(), 0)
        at += SLICE_BYTES_MAX
    assert FULL_BYTES < fetch.buffered <= FULL_BYTES + SLICE_BYTES_MAX
    assert fetch.take(DATA_FILE, 0, PIECE_BYTES) is not None


def received(side: Offer | Fetch, data: bytes, rng: random.Random, whole: bool) -> object:
    """The result of a side for bytes: its state, or the one error."""
    try:
        while data:
            size = len(data) if whole else rng.choice((1, 3, 50, 2000))
            side.receive(data[:size], 1.0)
            data = data[size:]
    except ProtocolError as error:
        return str(error)
    if isinstance(side, Offer):
        return side.need()
    return side.snapshot, side.bye, side.buffered, side.received, side.last_lsn


def absurd(rng: random.Random) -> int:
    return rng.choice((0, 1, 100, 3000, 9000, 1 << 31, 1 << 32, 1 << 50, (1 << 64) - 1))


def leaders(rng: random.Random) -> list[Message]:
    sent: list[Message] = []
    at = 0
    if rng.random() < 0.2:
        sizes = absurd(rng), absurd(rng)
        sent.append(Snapshot(absurd(rng), rng.randrange(1 << 32), *sizes, rng.randbytes(32)))
    for _ in range(rng.randint(1, 6)):
        piece = rng.randbytes(rng.choice((1, 100, 3000)))
        sent.append(Data(rng.choice((DATA_FILE, DATA_FILE, MANIFEST_FILE)), at, piece))
        at += len(piece)
        if rng.random() < 0.3:
            sent.append(Beat(at, 9, 9, 9))
    if rng.random() < 0.1:
        sent.append(Bye("enough"))
    return shuffled(rng, sent) if rng.random() < 0.3 else sent


def followers(rng: random.Random) -> list[Message]:
    sent: list[Message] = []
    for _ in range(rng.randint(1, 6)):
        file = rng.choice((DATA_FILE, MANIFEST_FILE))
        sent.append(Want(file, absurd(rng)))
        sent.append(Ack(rng.randrange(9), rng.randrange(9)))
    return sent


def fetching() -> Fetch:
    fetch = Fetch(0)
    fetch.receive(OFFERED._replace(data_bytes=9000).pack(), 0)
    fetch.want(DATA_FILE, 0)
    return fetch


def waiting() -> Fetch:
    return Fetch(0)


def offering() -> Offer:
    offer = Offer(0)
    offer.offered(OFFERED)
    offer.send(0, 0, (9, 9), 9, MORE)
    return offer


def preparing() -> Offer:
    return Offer(0)


@pytest.mark.parametrize("rounds", some_and_all(500, 50_000))
def test_invented_bytes(rounds: int) -> None:
    """Whole equals byte by byte, and nothing but a ProtocolError comes out."""
    refused = 0
    for seed in new_seeds(rounds):
        rng = random.Random(seed)
        from_leader = rng.random() < 0.5
        messages = (leaders if from_leader else followers)(rng)
        data = b"".join(each.pack() for each in messages)
        if rng.random() < 0.7:
            data = damaged(rng, data)
        make: Callable[[], Offer | Fetch]
        if from_leader:
            make = rng.choice((fetching, fetching, waiting))
        else:
            make = rng.choice((offering, offering, preparing))
        whole = received(make(), data, rng, True)
        assert received(make(), data, rng, False) == whole, f"seed {seed}"
        refused += isinstance(whole, str)
    assert rounds / 3 < refused < rounds


@pytest.mark.parametrize("rounds", some_and_all(100, 5000))
def test_any_order_of_wishes_and_reads(rounds: int) -> None:
    """A follower asks again and again, a leader reads in between: each byte that it sends is the one that it names."""
    for seed in new_seeds(rounds):
        rng = random.Random(seed)
        offer, needed, sent = offering(), None, Messages(FROM_LEADER)
        wanted = 0, 0
        for _ in range(rng.randint(1, 30)):
            match rng.randrange(4):
                case 0:
                    file = rng.choice(list(FILES))
                    wanted = file, rng.randint(0, len(FILES[file]))
                    offer.receive(Want(*wanted).pack(), 0)
                case 1:
                    needed = offer.need() or needed
                case 2 if needed is not None:  # it may be for an earlier wish
                    at = needed.offset
                    offer.put(needed, FILES[needed.file][at : at + needed.nbytes])
                case _:
                    room = rng.choice((0, 30, 5000, MORE))
                    data = offer.send(0, 0, (9, 9), 9, room)
                    assert len(data) <= room
                    sent.put(data)
                    for each in sent:
                        assert isinstance(each, Data) and each[:2] == wanted, f"seed {seed}"
                        assert each.data == FILES[each.file][each.offset :][: len(each.data)]
                        wanted = each.file, each.offset + len(each.data)
