"""Any bytes, cut anywhere, give the same commands, the same error and the same rest; a plain model says which.

The model reads a request as Redis does (networking.c of 7.0), from the start with every byte that comes. It knows no
shortcut. The seed of the random inputs is printed.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.wire import encode
from tests.rounds import more, some_and_all

from tidelog.server.wire import requests as module
from tidelog.server.wire.inline import split_words
from tidelog.server.wire.requests import Limits, ProtocolError, Requests

LINE_BYTES_MAX = 40  # of a line in these tests

TIGHT = Limits(arguments_max=5, bulk_bytes_max=30, query_bytes_max=70)
WIDE = Limits(arguments_max=1 << 20, bulk_bytes_max=1 << 20, query_bytes_max=1 << 20)


class Outcome(NamedTuple):
    """The result of parsing some bytes. `error` is None, or the line; `pending` then means nothing."""

    commands: list[list[bytes]]
    error: bytes | None
    pending: int = 0


# --- the model


class _Wait(Exception):
    pass


class _Wrong(Exception):
    pass


def _line(data: bytes, at: int, ending: bytes, size: int, too_long: str) -> int:
    found = data[at:].partition(b"\0")[0].find(ending)
    found = found if found < 0 else at + found
    if found < 0 and len(data) - at > LINE_BYTES_MAX:
        raise _Wrong(too_long)
    if found < 0 or found + size > len(data):
        raise _Wait
    return found


def _number(digits: bytes) -> int | None:
    text = digits.decode("latin-1")
    plain = text.removeprefix("-")
    if not plain or any(c not in "0123456789" for c in plain) or str(int(plain)) != plain:
        return None
    number = int(text)
    return None if text == "-0" or not -(1 << 63) <= number < 1 << 63 else number


def _one(data: bytes, limits: Limits) -> tuple[list[bytes], int]:
    """The request that `data` begins with, and its length."""
    if data[:1] != b"*":
        end = _line(data, 0, b"\n", 1, "too big inline request")
        words = split_words(data[:end].removesuffix(b"\r"))
        if words is None:
            raise _Wrong("unbalanced quotes in request")
        return words, end + 1
    end = _line(data, 0, b"\r", 2, "too big mbulk count string")
    count = _number(data[1:end])
    if count is None or count > limits.arguments_max:
        raise _Wrong("invalid multibulk length")
    at = end + 2
    args: list[bytes] = []
    for _ in range(count):
        end = _line(data, at, b"\r", 2, "too big bulk count string")
        if data[at : at + 1] != b"$":
            got = data[at : at + 1].translate(bytes.maketrans(b"\r\n", b"  ")).decode("latin-1")
            raise _Wrong(f"expected '$', got '{got}'")
        length = _number(data[at + 1 : end])
        if length is None or not 0 <= length <= limits.bulk_bytes_max:
            raise _Wrong("invalid bulk length")
        at = end + 2
        if len(data) < at + length + 2:
            raise _Wait
        args.append(data[at : at + length])
        at += length + 2
    return args, at


def model(data: bytes, limits: Limits) -> Outcome:
    commands: list[list[bytes]] = []
    held = b""
    for byte in data:
        held += bytes((byte,))
        try:
            args, used = _one(held, limits)
        except _Wait:
            if len(held) > limits.query_bytes_max:
                return Outcome(commands, b"")
        except _Wrong as wrong:
            line = f"ERR Protocol error: {wrong}"
            return Outcome(commands, line.encode("latin-1"))
        else:
            assert used == len(held)
            held = b""
            if args:
                commands.append(args)
    return Outcome(commands, None, len(held))


# --- ours


def fed(pieces: list[bytes], limits: Limits, often: list[bytes] | None = None) -> Outcome:
    requests = Requests(limits)
    if often is not None:
        requests.expect(often)
    commands: list[list[bytes]] = []
    sent = 0
    for piece in pieces:
        sent += len(piece)
        try:
            commands += requests.feed(piece)
        except ProtocolError as error:
            return Outcome(commands + error.commands, error.line)
        held = len(requests._held) + sum(map(len, requests._args))
        assert held <= requests.pending <= sent
    assert all(arg.__class__ is bytes for command in commands for arg in command)
    return Outcome(commands, None, requests.pending)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    places = [0, *sorted(places), len(data)]
    return [data[start:stop] for start, stop in zip(places, places[1:])]


def check(data: bytes, places: list[int], limits: Limits) -> None:
    expected = model(data, limits)
    assert fed([data], limits) == expected
    assert fed([data[i : i + 1] for i in range(len(data))], limits) == expected
    assert fed(cut(data, places), limits) == expected
    for often in expected.commands[-1:]:
        assert fed([data], limits, often) == expected
        assert fed(cut(data, places), limits, often) == expected


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_BYTES_MAX", LINE_BYTES_MAX)


# --- inputs

# fmt: off
SCRAPS = [
    b"\r\n", b"\r", b"\n", b"*", b"$", b"\0", b" ", b'"', b"'", b"\\", b"\\x41", b"-", b"01", b"\xff", b"+OK\r\n",
    b"*0\r\n", b"*-1\r\n", b"*1\r\n", b"*2\r\n", b"*6\r\n", b"*1023\r\n", b"*1024\r\n", b"*1048576\r\n", b":1\r\n",
    b"*1048577\r\n", b"*99999999999999999999\r\n", b"$0\r\n", b"$-1\r\n", b"$1\r\n", b"$31\r\n", b"$1048577\r\n",
    b"$4\r\nPING\r\n", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n", b"PING a b\n", b"ECHO 'a b' \"c\\n\"\r\n", b"x" * 39,
    b"x" * 41, b"\r\n$3\r\n", b"a\r\nb",
]
# fmt: on
WORDS = [
    b"",
    b"a",
    b"XADD",
    b"\r\n",
    b"\r",
    b"\n",
    b"$1",
    b"*1\r\n",
    b"a\r\nb",
    b"x" * 30,
    b"y" * 31,
]
LARGE = [b"z" * 1023, b"z" * 1024, b"\r\n" * 600]


def random_input(pick: random.Random) -> bytes:
    """Whole commands, scraps of them and noise, in any order; some bytes changed, lost or doubled."""
    parts: list[bytes] = []
    same = [pick.choice(WORDS) for _ in range(pick.randint(1, 4))]
    for _ in range(pick.choice((1, 2, 3, 8))):
        kind = pick.random()
        if kind < 0.3:
            parts.append(encode(same))
        elif kind < 0.65:
            words = WORDS + LARGE if pick.random() < 0.02 else WORDS
            parts.append(encode([pick.choice(words) for _ in range(pick.randint(1, 6))]))
        elif kind < 0.95:
            parts.append(pick.choice(SCRAPS))
        else:
            parts.append(pick.randbytes(pick.randint(1, 6)))
    data = bytearray(b"".join(parts))
    while data and pick.random() < 0.3:
        at = pick.randrange(len(data))
        match pick.randrange(3):
            case 0:
                data[at] = pick.choice(b"*$\r\n\0 0123456789'\"x")
            case 1:
                del data[at : at + pick.randint(1, 3)]
            case _:
                data[at:at] = data[at : at + pick.randint(1, 9)]
    return bytes(data)


def run(count: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    pick = random.Random(seed)
    for number in range(count):
        data = random_input(pick)
        places = [pick.randint(0, len(data)) for _ in range(pick.randint(1, 4))]
        limits = TIGHT if pick.random() < 0.3 else WIDE
        try:
            check(data, places, limits)
        except Exception as error:
            raise AssertionError(f"input {number}: {data!r} cut at {places}, {limits}") from error


def test_what_is_expected_need_not_be_what_was_sent() -> None:
    """Bytes that end with it may belong to an argument, or to a command that has begun before."""
    read = [b"XREAD", b"STREAMS", b"s", b"0"]
    often = encode(read)
    for before in (b"", encode([b"PING"]), b"PING\r\n", b"*1\r\n$4\r\nPI", b"*2\r\n$4\r\nECHO\r\n"):
        check(before + often, [len(before)], WIDE)
        assert fed([before + often], WIDE, read) == model(before + often, WIDE)
    for data in (
        encode([b"ECHO", often]),
        encode([b"ECHO", often])[:-2],
        b"*1\r\n$%d\r\n" % len(often) + often,
    ):
        assert fed([data], WIDE, read) == model(data, WIDE)
    (command,) = Requests(WIDE).feed(often)
    assert command == read
    requests = Requests(WIDE)
    requests.expect(read)
    assert [
        requests.feed(often)[0] is read,
        requests.feed(encode([b"PING"]) + often)[1] is read,
    ] == [True, True]


@pytest.mark.parametrize("count", some_and_all(500, 3_000))
def test_random_inputs(count: int) -> None:
    run(count)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_random_inputs() -> None:
    run(200_000)


pieces_of_input = st.one_of(
    st.sampled_from(SCRAPS),
    st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=8)), min_size=1, max_size=6).map(
        encode
    ),
    st.binary(max_size=6),
    st.from_regex(rb"[*$]-?[0-9]{0,20}\r\n", fullmatch=True),
)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_inputs_of_hypothesis(data: st.DataObject) -> None:
    sent = b"".join(data.draw(st.lists(pieces_of_input, max_size=8)))
    places = data.draw(st.lists(st.integers(0, len(sent)), max_size=4))
    check(sent, places, data.draw(st.sampled_from((TIGHT, WIDE))))


test_inputs_of_hypothesis_more = more(test_inputs_of_hypothesis, 500)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_before_authentication(data: st.DataObject) -> None:
    """Bytes that are held back until the commands before them have run give the same result, wherever they were cut."""
    sent = b"".join(data.draw(st.lists(pieces_of_input, max_size=8)))
    places = data.draw(st.lists(st.integers(0, len(sent)), max_size=4))
    outcomes = []
    for pieces in ([sent], [sent[i : i + 1] for i in range(len(sent))], cut(sent, places)):
        requests = Requests(WIDE)
        requests.restrict(True)
        commands: list[list[bytes]] = []
        line = None
        try:
            for piece in pieces:
                commands += requests.feed(piece)
                while requests.held_back:
                    commands += requests.feed(b"")
        except ProtocolError as error:
            commands += error.commands
            line = error.line
        outcomes.append(Outcome(commands, line, requests.pending if line is None else 0))
    assert outcomes[0] == outcomes[1] == outcomes[2]


test_before_authentication_more = more(test_before_authentication, 500)
