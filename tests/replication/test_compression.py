"""Compressed links: only if both sides want it, the same bytes come out, and a bomb is refused."""

from __future__ import annotations

import random
import zlib

import pytest
from tests.replication.conftest import Pair
from tests.replication.shipped import GOOD, UUID, Shipped
from tests.replication.stores import equal
from tests.rounds import new_seeds, some_and_all
from tests.until import until

from tidelog.replication import protocol
from tidelog.replication.errors import ProtocolError
from tidelog.replication.feed import Feed
from tidelog.replication.fetch import Fetch
from tidelog.replication.handshake import Follow, parse_follow
from tidelog.replication.intake import Intake
from tidelog.replication.offer import Offer
from tidelog.replication.protocol import (
    BEAT,
    DATA,
    DATA_FILE,
    FRAMES,
    FROM_LEADER,
    FROM_LEADER_PACKED,
    PACKED,
    SLICE_BYTES_MAX,
    Data,
    Frames,
    Messages,
    Snapshot,
    Want,
    message,
    packed,
)


def read(data: bytes, kinds: object = FROM_LEADER_PACKED) -> list[protocol.Message]:
    messages = Messages(kinds)  # type: ignore[arg-type]
    messages.put(data)
    return list(messages)


def test_a_message_comes_back() -> None:
    text = b"the same again, " * 4096
    for found in (Frames(text[:SLICE_BYTES_MAX]), Data(DATA_FILE, 1 << 40, text[:SLICE_BYTES_MAX])):
        whole = found.pack()
        kind = FRAMES if isinstance(found, Frames) else DATA
        small = packed(kind, whole[5:-4])
        assert len(small) < len(whole) / 50 and read(small) == [found]
    noise = random.Random(1).randbytes(1000)
    assert packed(FRAMES, noise) == Frames(noise).pack()  # compressed it would be longer


def holding(kind: int, payload: bytes) -> bytes:
    return message(PACKED, bytes((kind,)) + payload)


# fmt: off
BAD: dict[str, tuple[bytes, str]] = {
    "a bomb":            (holding(FRAMES, zlib.compress(bytes(60 << 20), 9)), "does not hold one FRAMES"),
    "one byte too many": (holding(FRAMES, zlib.compress(bytes(SLICE_BYTES_MAX + 1))), "does not hold one FRAMES"),
    "nothing":           (holding(FRAMES, zlib.compress(b"")), "does not hold one FRAMES"),
    "too short":         (holding(DATA, zlib.compress(bytes(9))), "does not hold one DATA"),
    "no zlib":           (holding(FRAMES, b"text"), "cannot be unpacked"),
    "cut off":           (holding(FRAMES, zlib.compress(bytes(99))[:-1]), "does not hold one FRAMES"),
    "more behind it":    (holding(FRAMES, zlib.compress(bytes(99)) + b"x"), "does not hold one FRAMES"),
    "another type":      (holding(BEAT, zlib.compress(bytes(28))), "holds a message of type 2"),
    "itself":            (holding(PACKED, zlib.compress(bytes(28))), "holds a message of type 10"),
    "no such type":      (holding(99, zlib.compress(bytes(28))), "holds a message of type 99"),
    "file 3":            (holding(DATA, zlib.compress(b"\x03" + bytes(20))), "named file 3"),
}
# fmt: on


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    data, said = BAD[name]
    with pytest.raises(ProtocolError, match=said):
        read(data)


def test_it_must_be_asked_for() -> None:
    with pytest.raises(ProtocolError, match="PACKED was not asked for"):
        read(packed(FRAMES, bytes(1000)), FROM_LEADER)
    with pytest.raises(ProtocolError, match="was not asked for"):
        Intake(UUID, 0, 0, 0.0).receive(packed(FRAMES, bytes(1000)), 0.0)


@pytest.mark.parametrize("rounds", some_and_all(300, 20_000))
def test_invented_payloads(rounds: int) -> None:
    """Their checksums are right. Nothing but a ProtocolError comes out, and never more than a slice."""
    for seed in new_seeds(rounds):
        rng = random.Random(seed)
        payload = bytearray(zlib.compress(bytes(rng.randrange(70_000)), rng.randrange(10)))
        for _ in range(rng.randrange(4)):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        try:
            found = read(holding(rng.choice((FRAMES, DATA)), bytes(payload)))
        except ProtocolError:
            continue
        assert all(len(each.data) <= SLICE_BYTES_MAX for each in found if isinstance(each, Frames))


def test_a_feed_and_an_intake() -> None:
    log = Shipped([3] * 200, padding=500)
    feed = Feed(log, log.end.lsn, 0.0, compress=True)
    intake = Intake(UUID, 0, 0, 0.0, compress=True)
    sent, taken = 0, b""
    while data := feed.send(0.0, 1, GOOD, log.end, log.end.lsn, 1 << 20):
        sent += len(data)
        for at in range(0, len(data), 1000):
            intake.receive(data[at : at + 1000], 0.0)
            while (batch := intake.take()) is not None:
                taken += batch.data
    assert taken == log.data and sent < len(log.data) / 5


def test_an_offer_and_a_fetch() -> None:
    content = b"page " * 100_000
    offer, fetch = Offer(0.0, compress=True), Fetch(0.0, compress=True)
    offer.offered(Snapshot(1, 2, 3, len(content), bytes(32)))
    fetch.receive(offer.send(0.0, 1, (1, 1), 1, 1 << 20), 0.0)
    offer.receive(fetch.want(DATA_FILE, 0), 0.0)
    sent, found = 0, b""
    while len(found) < len(content):
        need = offer.need()
        if need is not None:
            offer.put(need, content[need.offset : need.offset + need.nbytes])
        data = offer.send(0.0, 1, (1, 1), 1, 1 << 20)
        sent += len(data)
        fetch.receive(data, 0.0)
        found += fetch.take(DATA_FILE, len(found), fetch.buffered) or b""
    assert found == content and sent < len(content) / 50
    offer.receive(Want(DATA_FILE, len(content)).pack(), 0.0)
    assert offer.need() is None


def test_the_word() -> None:
    asked = Follow(bytes(16), bytes(16), 0, 0, 0, (), compress=True)
    assert asked.words()[-1] == b"COMPRESS" and parse_follow(asked.words()) == asked
    every = asked._replace(replace=True, copy=True)
    assert parse_follow(every.words()) == every
    for words in ([b"COMPRESS", b"COPY"], [b"COMPRESS", b"COMPRESS"]):
        with pytest.raises(ProtocolError):
            parse_follow([*asked.words()[:-1], *words])


@pytest.mark.parametrize(("leader", "follower"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("copied", [False, True])
def test_only_if_both_want_it(pair: Pair, leader: bool, follower: bool, copied: bool) -> None:
    text = "the same words again " * 50
    for _ in range(200):
        pair.db.xadd("orders", {"text": text})
    if copied:
        pair.db = pair.open("released", segment_bytes=8192, retain_bytes=0)
        for number in range(200):
            pair.db.xadd("orders", {"text": f"{number} {text}"})
        pair.db.checkpoint()
        pair.port = pair.serve(pair.db).port
        pair.proxy.leader = pair.port
    with pair.client() as client:
        client.config_set("repl-compression", "yes" if leader else "no")
    sent = 0

    def count(data: bytes, at: int) -> bytes:
        nonlocal sent
        sent += len(data)
        return data

    pair.proxy.change = count
    db, port = pair.follower(repl_compression=follower)
    client = pair.client(port)
    until(lambda: client.info("replication")["master_link_status"] == "up")
    until(lambda: db.digest() == pair.db.digest())
    assert (sent < 100_000) == (leader and follower)
    if not copied:
        equal(pair.db, db)
