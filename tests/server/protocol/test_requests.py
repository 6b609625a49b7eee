"""Requests: what comes out, what is refused and with which words; a real redis-server is asked the same."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.oracle.server import RedisServer
from tests.oracle.wire import encode
from tests.server.conftest import Start
from tests.server.dial import dial, hang_up  # noqa: F401
from tests.server.loop import in_one_turn
from tests.server.real_redis import Raw, real_redis

from tidelog.server.wire.inline import split_words
from tidelog.server.wire.requests import Limits, ProtocolError, Requests, alike

PING = encode([b"PING"])
LINE = 1 << 16


def feed(*pieces: bytes, limits: Limits | None = None) -> list[list[bytes]]:
    requests = Requests(limits or Limits())
    return [command for piece in pieces for command in requests.feed(piece)]


def refused(*pieces: bytes, limits: Limits | None = None) -> bytes:
    with pytest.raises(ProtocolError) as caught:
        feed(*pieces, limits=limits)
    return caught.value.line


# --- commands


# fmt: off
COMMANDS: list[tuple[bytes, list[list[bytes]]]] = [
    (b"", []),
    (PING, [[b"PING"]]),
    (PING * 3, [[b"PING"]] * 3),
    (encode([b"SET", b"k", b""]), [[b"SET", b"k", b""]]),
    (encode([b"SET", b"k", b"\r\n"]) + PING, [[b"SET", b"k", b"\r\n"], [b"PING"]]),
    (encode([b"ECHO", b"*1\r\n$4\r\nPING\r\n"]) + PING, [[b"ECHO", b"*1\r\n$4\r\nPING\r\n"], [b"PING"]]),
    (encode([b"ECHO", b"a\r"]) + encode([b"ECHO", b"\nb"]), [[b"ECHO", b"a\r"], [b"ECHO", b"\nb"]]),
    (encode([b"A", b"x" * 1023]) + encode([b"A", b"x" * 1024]), [[b"A", b"x" * 1023], [b"A", b"x" * 1024]]),
    (encode([b"A"] * 1023) + encode([b"B"] * 1024), [[b"A"] * 1023, [b"B"] * 1024]),
    (PING + encode([b"ECHO", b"x"]) + PING, [[b"PING"], [b"ECHO", b"x"], [b"PING"]]),
    (encode([b"A"] * 3000 + [b"\r\n"] + [b"C"] * 2000) + PING, [[b"A"] * 3000 + [b"\r\n"] + [b"C"] * 2000, [b"PING"]]),
    (encode([b"A"] * 2000 + [b"x" * 1024] * 300) * 2, [[b"A"] * 2000 + [b"x" * 1024] * 300] * 2),
    (b"*0\r\n*-1\r\n*-9223372036854775808\r\n" + PING, [[b"PING"]]),
    (b"\r\n\n  \r\n" + PING + b"\r\n", [[b"PING"]]),
    (b"PING\nPING a\r\n" + PING, [[b"PING"], [b"PING", b"a"], [b"PING"]]),
    (b"*1\rX$4\rYPINGZZPING\n", [[b"PING"], [b"PING"]]),
    (b"+OK\r\n$4\r\n", [[b"+OK"], [b"$4"]]),
    (b"PING\r\r\n", [[b"PING"]]),
]
# fmt: on


@pytest.mark.parametrize("data, commands", COMMANDS)
def test_commands(data: bytes, commands: list[list[bytes]]) -> None:
    assert feed(data) == commands
    assert feed(*(data[i : i + 1] for i in range(len(data)))) == commands
    assert feed(data[: len(data) // 2], data[len(data) // 2 :]) == commands


def test_pending_is_what_is_not_complete() -> None:
    requests = Requests(Limits())
    data = encode([b"SET", b"key", b"value"])
    for count in range(1, len(data)):
        assert requests.feed(data[count - 1 : count]) == []
        assert requests.pending == count
    assert requests.feed(data[-1:] + PING + b"*1\r\n") == [[b"SET", b"key", b"value"], [b"PING"]]
    assert requests.pending == 4
    assert requests.feed(b"$4\r\nPING\r\n") == [[b"PING"]]
    assert requests.pending == 0


# --- of many clients at once

messages = st.lists(
    st.lists(st.sampled_from([b"", b"a", b"*1", b"$1", b"\r", b"\n", b"\r\n", b"x" * 1024]), min_size=1, max_size=3)
    .map(encode),
    min_size=1,
    max_size=4,
)  # fmt: skip


@given(messages, st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), max_size=3))
@example([encode([b"a"]), encode([b"b"])], [])
@example([encode([b"a", b"bc"]), encode([b"b", b""])], [])
@example([encode([b"a"]), encode([b"b"])], [(0, 1)])
@example([encode([b"a"] * 10), encode([b"b"] * 10)], [(0, 2)])
@example([encode([b"a"]), b"PING\r\n", encode([b"a"])], [])
def test_what_many_sent_is_taken_apart_as_what_each_sent(
    sent: list[bytes], moves: list[tuple[int, int]]
) -> None:
    """Whole commands, or some bytes of them moved to the neighbour's message."""
    for at, count in moves:
        if at + 1 < len(sent):
            both = sent[at] + sent[at + 1]
            cut = min(max(len(sent[at]) + count, 0), len(both))
            sent = [*sent[:at], both[:cut], both[cut:], *sent[at + 2 :]]
    found = alike(sent, Limits())
    if found is not None:
        assert [[args] for args in found] == [Requests(Limits()).feed(data) for data in sent]


def test_what_many_sent_alike_is_taken_apart() -> None:
    sent = [[b"XADD", b"k%d" % n, b"*", b"f", b"x" * n] for n in range(60)]
    assert alike(list(map(encode, sent)), Limits()) == sent
    assert alike(list(map(encode, sent)), Limits(bulk_bytes_max=1000)) is None
    assert alike(list(map(encode, sent)), Limits(query_bytes_max=1000)) is None
    assert alike(list(map(encode, sent)), Limits(arguments_max=100)) is None
    assert alike([*map(encode, sent), b""], Limits()) is None
    assert alike([b"", *map(encode, sent)], Limits()) is None


@given(messages, st.integers(0, 8))
@example([encode([b"a", b"bc"]), encode([b"b", b""])], 0)
def test_a_pipeline_is_taken_apart_as_byte_by_byte(sent: list[bytes], times: int) -> None:
    data = b"".join(sent) + sent[-1] * times
    assert feed(data) == feed(*(data[i : i + 1] for i in range(len(data))))


def test_in_one_turn_each_client_is_answered_what_it_sent(start: Start) -> None:
    """Whole commands of twelve clients; then one whose bytes end within a header that another seems to go on with."""
    running = start()
    clients = [dial(running.port) for _ in range(12)]
    for client in clients:
        assert client.call(b"PING") == ("+", b"PONG")
    adds = [encode([b"XADD", b"s", b"*", b"n", b"%d" % n]) for n in range(12)]
    in_one_turn(running, clients, adds)
    ids = [client.receive() for client in clients]
    wanted = [[id_, [b"n", b"%d" % n]] for n, id_ in enumerate(ids)]
    assert sorted(clients[0].call(b"XRANGE", b"s", b"-", b"+")) == sorted(wanted)

    in_one_turn(running, clients, [adds[0] + b"*", adds[1][1:], *adds[2:]])
    for client in [clients[0], *clients[2:]]:
        assert isinstance(client.receive(), bytes)
    assert clients[1].receive()[1].startswith(b"ERR unknown command '5'")  # inline, as it was sent
    clients[0].raw(adds[0][1:])
    assert isinstance(clients[0].receive(), bytes)
    assert clients[2].call(b"XLEN", b"s") == 12 + 12


def test_an_xadd_of_one_word_begins_no_row(start: Start) -> None:
    client = dial(start().port)
    add = [b"XADD", b"s", b"*", b"n", b"1"]
    client.send([[b"XADD"], add, [b"XADD"], add, add])
    replies = [client.receive() for _ in range(5)]
    assert [isinstance(reply, bytes) for reply in replies] == [False, True, False, True, True]


# --- what is refused; the same list goes to the real server

# fmt: off
ERRORS: list[tuple[bytes, bytes]] = [
    (b"*\r\n", b"invalid multibulk length"),
    (b"*abc\r\n", b"invalid multibulk length"),
    (b"*01\r\n", b"invalid multibulk length"),
    (b"*+1\r\n", b"invalid multibulk length"),
    (b"*-0\r\n", b"invalid multibulk length"),
    (b"* 1\r\n", b"invalid multibulk length"),
    (b"*1 \r\n", b"invalid multibulk length"),
    (b"*1_0\r\n", b"invalid multibulk length"),
    (b"*1\n$4\nPING\n\r\n", b"invalid multibulk length"),
    (b"*2147483648\r\n", b"invalid multibulk length"),
    (b"*9223372036854775808\r\n", b"invalid multibulk length"),
    (b"*-9223372036854775809\r\n", b"invalid multibulk length"),
    (b"*" + b"9" * 40 + b"\r\n", b"invalid multibulk length"),
    (b"*1\r\n#4\r\n", b"expected '$', got '#'"),
    (b"*1\r\n*1\r\n", b"expected '$', got '*'"),
    (b"*1\r\n+PING\r\n", b"expected '$', got '+'"),
    (b"*1\r\n\r\n", b"expected '$', got ' '"),
    (b"*1\r\n\n\r\n", b"expected '$', got ' '"),
    (b"*1\r\n\xff\r\n", b"expected '$', got '\xff'"),
    (b"*2\r\n$4\r\nECHO\r\n:1\r\n", b"expected '$', got ':'"),
    (b"*1\r\n$-1\r\n", b"invalid bulk length"),
    (b"*1\r\n$\r\n", b"invalid bulk length"),
    (b"*1\r\n$x\r\n", b"invalid bulk length"),
    (b"*1\r\n$04\r\nPING\r\n", b"invalid bulk length"),
    (b"*1\r\n$536870913\r\n", b"invalid bulk length"),
    (b"*3\r\n$4\r\nECHO\r\n$ 1\r\n", b"invalid bulk length"),
    (b"*" + b"1" * LINE, b"too big mbulk count string"),
    (b"*1\0\r\n" + b"x" * LINE, b"too big mbulk count string"),
    (b"*1\r\n" + b"$" * (LINE + 1), b"too big bulk count string"),
    (b"*1\r\n$4\0\r\n" + b"x" * LINE, b"too big bulk count string"),
    (b"a" * (LINE + 1), b"too big inline request"),
    (b"PI\0NG\r\n" + b"x" * LINE, b"too big inline request"),
    (b'ECHO "a\r\n', b"unbalanced quotes in request"),
    (b"ECHO 'a\n", b"unbalanced quotes in request"),
    (b'ECHO "a"b\r\n', b"unbalanced quotes in request"),
]
# fmt: on


@pytest.mark.parametrize("data, text", ERRORS)
def test_errors(data: bytes, text: bytes) -> None:
    line = b"ERR Protocol error: " + text
    assert refused(data) == line
    half = len(data) // 2
    assert refused(data[:half], data[half:]) == line
    if len(data) < LINE:
        assert refused(*(data[i : i + 1] for i in range(len(data)))) == line
    with pytest.raises(ProtocolError) as caught:
        feed(PING + b"ECHO hi\r\n" + data)
    assert (caught.value.line, caught.value.commands) == (line, [[b"PING"], [b"ECHO", b"hi"]])


# fmt: off
@pytest.mark.parametrize("data", [
    b"*1\r\n\0x\r\n", b"*1\0\r\n$4\r\nPING\r\n", b"PI\0NG\r\nPING\r\n", b"\0\r\n" + PING,
    b"*" + b"1" * (LINE - 1), b"*1\r\n" + b"$" * LINE, b"a" * LINE, b"*2147483647\r\n", b"*1\r\n$536870912\r\n",
])
# fmt: on
def test_not_complete(data: bytes) -> None:
    requests = Requests(Limits())
    assert requests.feed(data) == []
    assert requests.pending == len(data)


def test_more_than_a_million_arguments() -> None:
    count = (1 << 20) + 1
    [command] = feed(b"*%d\r\n" % count + b"$1\r\na\r\n" * count)
    assert len(command) == count
    assert refused(b"*2147483648\r\n") == b"ERR Protocol error: invalid multibulk length"


# --- limits


def test_a_command_may_have_so_many_bytes() -> None:
    limits = Limits(query_bytes_max=100)
    fits = encode([b"ECHO", b"x" * 80])
    assert len(fits) == 101  # 100 of them may be waiting for the last
    assert feed(fits, fits[:50], fits[50:], limits=limits) == [[b"ECHO", b"x" * 80]] * 2
    longer = encode([b"ECHO", b"x" * 81])
    assert refused(longer, limits=limits) == b""
    assert refused(longer[:50], longer[50:101], limits=limits) == b""
    assert refused(b"x" * 101, limits=limits) == b""
    with pytest.raises(ProtocolError) as caught:
        feed(fits + longer, limits=limits)
    assert caught.value.commands == [[b"ECHO", b"x" * 80]]


def test_a_change_of_limits_holds_from_the_next_bytes_on() -> None:
    limits = Limits()
    requests = Requests(limits)
    limits.change("bulk_bytes_max", 10)
    with pytest.raises(ProtocolError):
        requests.feed(encode([b"x" * 11]))


def test_who_has_not_authenticated_may_send_little() -> None:
    def restricted() -> Requests:
        requests = Requests(Limits())
        requests.restrict(True)
        return requests

    small = encode([b"x"] * 9 + [b"y" * 16384])
    assert restricted().feed(small) == [[b"x"] * 9 + [b"y" * 16384]]
    for data, text in (
        (b"*11\r\n", b"unauthenticated multibulk length"),
        (b"*1\r\n$16385\r\n", b"unauthenticated bulk length"),
        (b"*2147483648\r\n", b"invalid multibulk length"),
        (b"*1\r\n$536870913\r\n", b"invalid bulk length"),
    ):
        with pytest.raises(ProtocolError) as caught:
            restricted().feed(data)
        assert caught.value.line == b"ERR Protocol error: " + text

    auth = [b"AUTH", b"secret"]
    for large in ([b"x"] * 11, [b"SET", b"k", b"y" * 16385]):
        behind = encode(auth) + encode(large) + PING
        for cut in range(1, len(encode(auth)) + 30):
            requests = restricted()
            commands = requests.feed(behind[:cut]) + requests.feed(behind[cut:])
            if requests.held_back:
                assert commands == [auth]
                requests.restrict(False)
                commands += requests.feed(b"")
                assert commands == [auth, large, [b"PING"]]
                assert not requests.held_back and not requests.pending
                break
        else:
            pytest.fail("never held back")
        requests = restricted()
        assert requests.feed(behind) == [auth] and requests.held_back
        with pytest.raises(ProtocolError):  # it gave the wrong password
            requests.feed(b"")


# --- time and memory


@pytest.mark.parametrize("size", [1, 1000, 65_536, 262_144])
def test_many_arguments_in_pieces(size: int) -> None:
    words = [b"DEL", *[b"k:%d" % number for number in range(3000)]]
    data = encode(words) * 2 + PING
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert feed(*pieces) == [words, words, [b"PING"]]


def test_a_large_argument_in_pieces_costs_its_length() -> None:
    def seconds(count: int) -> float:
        requests = Requests(Limits())
        requests.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (count << 16))
        piece = bytes(1 << 16)
        started = time.process_time()
        for _ in range(count):
            assert requests.feed(piece) == []
        spent = time.process_time() - started
        (command,) = requests.feed(b"\r\n")
        assert len(command[1]) == count << 16
        return spent

    once, four_times = min(seconds(200) for _ in range(3)), min(seconds(800) for _ in range(3))
    assert four_times < 10 * once + 0.05  # 16 if each piece were to move those before it


@pytest.mark.parametrize(
    "data",
    [
        b"*1048576\r\n$536870912\r\n",
        b"*1048576\r\n",
        b"*1\r\n$536870912\r\n" + b"x" * 5000,
        b"*1000\r\n" * 5000,
        b"*1048576\r\n" + b"$0\r\n\r\n" * 5000,
        b"\r\n" * 30000,
        b"*0\r\n" * 10000,
    ],
)
def test_no_more_is_kept_than_was_sent(data: bytes) -> None:
    requests = Requests(Limits())
    requests.feed(PING)
    tracemalloc.start()
    try:
        try:
            requests.feed(data)
        except ProtocolError:
            pass
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert requests.pending <= len(data)
    assert kept <= 2 * len(data) + 4096
    assert most <= 16 * len(data) + 16384  # pieces of split(), for as long as feed() runs


def test_bytes_one_by_one_take_no_room_of_their_own() -> None:
    requests = Requests(Limits())
    requests.feed(b"*1\r\n$1000000\r\n")
    tracemalloc.start()
    try:
        for _ in range(50_000):
            requests.feed(b"xy")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 150_000


# --- inline commands

# fmt: off
LINES: list[tuple[bytes, list[bytes] | None]] = [
    (b"", []),
    (b" \t ", []),
    (b"a b", [b"a", b"b"]),
    (b"  a  b  ", [b"a", b"b"]),
    (b"a\tb\rc", [b"a", b"b", b"c"]),
    (b"a\x0bb \x0b\x0cc", [b"a\x0bb", b"c"]),
    (b'"a b" c', [b"a b", b"c"]),
    (b'""', [b""]),
    (b"''", [b""]),
    (b'a"b c" d', [b"ab c", b"d"]),
    (b"a'b c'", [b"ab c"]),
    (b'"a"b', None),
    (b"'a'b", None),
    (b'"a""b"', None),
    (b'"a"\x0bb', [b"a", b"b"]),
    (b'"a', None),
    (b"'a", None),
    (b'"', None),
    (b'"a\\"', None),
    (b"'a\\'", None),
    (b'"a\\', None),
    (b'"\\x41\\x0a\\xFf"', [b"A\n\xff"]),
    (b'"\\x4g\\xg\\x4"', [b"x4gxgx4"]),
    (b'"\\n\\r\\t\\b\\a\\\\\\"\\q\\\'"', [b"\n\r\t\b\a\\\"q'"]),
    (b"'\\n\\x41 \\' \"'", [b"\\n\\x41 ' \""]),
    (b"\\n \\x41", [b"\\n", b"\\x41"]),
    (b"'\\\\'", None),
    (b"'\\\\' '", [b"\\' "]),
    (b'ab\x0bcd"x', None),
    (b'\xff"\xfe"', [b"\xff\xfe"]),
]
# fmt: on


@pytest.mark.parametrize("line, words", LINES)
def test_words(line: bytes, words: list[bytes] | None) -> None:
    assert split_words(line) == words


def test_words_take_linear_time() -> None:
    started = time.process_time()
    for line in (
        b"'" + b"\\'" * 30_000,
        b'"' + b"\\" * 60_001,
        b"a" * 60_000 + b'"',
        b'a"' * 30_001,
    ):
        assert split_words(line) is None
    assert time.process_time() - started < 10


# --- beside the real one


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with real_redis() as (server, _):
        yield server


@pytest.mark.parametrize("data, text", ERRORS)
def test_redis_refuses_the_same(data: bytes, text: bytes, redis: RedisServer) -> None:
    with Raw(redis) as raw:
        assert raw.last(PING + data) == b"+PONG\r\n-ERR Protocol error: %b\r\n" % text


@pytest.mark.parametrize("line, words", LINES)
def test_redis_reads_the_same_words(
    line: bytes, words: list[bytes] | None, redis: RedisServer
) -> None:
    with Raw(redis) as raw:
        told = raw.ask(b"EVAL 'return ARGV' 0 " + line + b"\n")
    if words is None:
        assert told == b"-ERR Protocol error: unbalanced quotes in request\r\n"
    else:
        assert told == encode(words)


@pytest.mark.parametrize("data, commands", COMMANDS)
def test_redis_reads_the_same_commands(
    data: bytes, commands: list[list[bytes]], redis: RedisServer
) -> None:
    with Raw(redis) as together, Raw(redis) as apart:
        assert together.ask(data) == b"".join(apart.ask(encode(one)) for one in commands)
