"""redis-cli: a session typed from the Redis Streams introduction, and its other ways of use.

The introduction: https://redis.io/docs/latest/develop/data-types/streams/. The clocks of tidelog and of a redis-server
7.0 are set to the times that its IDs and idle times tell, so that the replies come out as they are shown there, to the
last millisecond. Where the text shows less than a current server does, or misprints, the step says so.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from tests.oracle.server import RedisServer
from tests.server.clients.cli import Bare, Typed, run, shown
from tests.server.clients.real import Clocks, clocked_redis, real_redis
from tests.server.conftest import Running, Start
from tests.until import until

OK = Bare("OK")
BOB_READS = 1_692_632_700_000
ALICE_CLAIMS = BOB_READS + 424_686 - 177_546
LORA_CLAIMS = BOB_READS + 424_686 - 72_241
INFO_ASKED = BOB_READS + 424_686


class Step(NamedTuple):
    """One line of the session.

    at      what the clocks are set to before it, unix ms; None = they stay
    reply   as shown in the text, in the notation of `clients.cli.shown`
    since   why redis-server 7.0 shows something else: the version from which on it is so
    after   ms that pass while the command blocks
    """

    at: int | None
    line: str
    reply: Any
    since: str = ""
    after: int = 0


def racer(id: str, name: str, speed: str, position: str, location: str) -> list[Any]:
    fields = ["rider", name, "speed", speed, "position", position, "location_id", location]
    return [id, fields]


CASTILLA = racer("1692632086370-0", "Castilla", "30.2", "1", "1")
NOREM = racer("1692632094485-0", "Norem", "28.8", "3", "1")
PRICKETT = racer("1692632102976-0", "Prickett", "29.7", "2", "1")
SECOND = racer("1692632147973-0", "Castilla", "29.9", "1", "2")
ITALY = {
    name: [f"{ms}-0", ["rider", name]]
    for ms, name in {
        1692632639151: "Castilla",
        1692632647899: "Royce",
        1692632662819: "Sam-Bodden",
        1692632670501: "Prickett",
        1692632678249: "Norem",
        1692633189161: "Jones",
        1692633198206: "Wood",
        1692633208557: "Henshaw",
    }.items()
}
TOO_SMALL = "ERR The ID specified in XADD is equal or smaller than the target stream top item"


def added(key: str, entry: list[Any]) -> Step:
    """XADD with an ID of the server's making, at the time that made it."""
    id, fields = entry
    return Step(int(id.partition("-")[0]), f"XADD {key} * {' '.join(fields)}", id)


def capped(entry: list[Any]) -> Step:
    step = added("race:italy", entry)
    return step._replace(line=step.line.replace(" * ", " MAXLEN 2 * "))


INTRODUCTION = [
    # Examples
    *(added("race:france", entry) for entry in (CASTILLA, NOREM, PRICKETT)),
    Step(None, "XRANGE race:france 1692632086370-0 + COUNT 2", [CASTILLA, NOREM]),
    Step(None, "XREAD COUNT 100 BLOCK 300 STREAMS race:france $", None, after=300),
    # Streams basics
    added("race:france", SECOND),
    Step(None, "XLEN race:france", 4),
    Step(None, "XADD race:usa 0-1 racer Castilla", "0-1"),  # the text leaves the quotes out, twice
    Step(None, "XADD race:usa 0-2 racer Norem", "0-2"),
    Step(None, "XADD race:usa 0-1 racer Prickett", Bare(f"(error) {TOO_SMALL}")),
    Step(None, "XADD race:usa 0-* racer Prickett", "0-3"),
    # Querying by range
    Step(None, "XRANGE race:france - +", [CASTILLA, NOREM, PRICKETT, SECOND]),
    Step(None, "XRANGE race:france 1692632086369 1692632086371", [CASTILLA]),
    Step(None, "XRANGE race:france - + COUNT 2", [CASTILLA, NOREM]),
    Step(None, "XRANGE race:france (1692632094485-0 + COUNT 2", [PRICKETT, SECOND]),
    Step(None, "XRANGE race:france (1692632147973-0 + COUNT 2", []),
    Step(None, "XREVRANGE race:france + - COUNT 1", [SECOND]),
    # Listening for new items
    Step(None, "XREAD COUNT 2 STREAMS race:france 0", [["race:france", [CASTILLA, NOREM]]]),
    # Consumer groups
    Step(None, "XGROUP CREATE race:france france_riders $", OK),
    Step(None, "XGROUP CREATE race:italy italy_riders $ MKSTREAM", OK),
    *(added("race:italy", entry) for entry in list(ITALY.values())[:5]),
    Step(
        None,
        "XREADGROUP GROUP italy_riders Alice COUNT 1 STREAMS race:italy >",
        [["race:italy", [ITALY["Castilla"]]]],
    ),
    Step(
        None,
        "XREADGROUP GROUP italy_riders Alice STREAMS race:italy 0",
        [["race:italy", [ITALY["Castilla"]]]],
    ),
    Step(None, "XACK race:italy italy_riders 1692632639151-0", 1),
    Step(None, "XREADGROUP GROUP italy_riders Alice STREAMS race:italy 0", [["race:italy", []]]),
    Step(
        BOB_READS,
        "XREADGROUP GROUP italy_riders Bob COUNT 2 STREAMS race:italy >",
        [["race:italy", [ITALY["Royce"], ITALY["Sam-Bodden"]]]],
    ),
    # Recovering from permanent failures
    Step(
        None,
        "XPENDING race:italy italy_riders",
        [2, "1692632647899-0", "1692632662819-0", [["Bob", "2"]]],
    ),
    Step(
        BOB_READS + 74_642,
        "XPENDING race:italy italy_riders - + 10",
        [["1692632647899-0", "Bob", 74_642, 1], ["1692632662819-0", "Bob", 74_642, 1]],
    ),
    Step(None, "XRANGE race:italy 1692632647899-0 1692632647899-0", [ITALY["Royce"]]),
    Step(
        ALICE_CLAIMS,
        "XCLAIM race:italy italy_riders Alice 60000 1692632647899-0",
        [ITALY["Royce"]],
    ),
    Step(None, "XCLAIM race:italy italy_riders Lora 60000 1692632647899-0", []),
    # The text is older than 7.0, from which on the IDs of deleted entries stand third.
    Step(
        None,
        "XAUTOCLAIM race:italy italy_riders Alice 60000 0-0 COUNT 1",
        ["0-0", [ITALY["Sam-Bodden"]], []],
    ),
    # The text has `(1692632662819-0` here, behind everything that is pending; its reply is that to 0-0.
    Step(
        LORA_CLAIMS,
        "XAUTOCLAIM race:italy italy_riders Lora 60000 (1692632662819-0 COUNT 1",
        ["0-0", [], []],
    ),
    Step(
        None,
        "XAUTOCLAIM race:italy italy_riders Lora 60000 0-0 COUNT 1",
        ["1692632662819-0", [ITALY["Royce"]], []],
    ),
    # Streams observability; the text shows the fields of 5.0
    Step(
        INFO_ASKED,
        "XINFO STREAM race:italy",
        [
            *("length", 5, "radix-tree-keys", 1, "radix-tree-nodes", 2),
            *("last-generated-id", "1692632678249-0", "max-deleted-entry-id", "0-0"),
            *("entries-added", 5, "recorded-first-entry-id", "1692632639151-0"),
            *("idmp-duration", 100, "idmp-maxsize", 100, "pids-tracked", 0, "iids-tracked", 0),
            *("iids-added", 0, "iids-duplicates", 0, "groups", 1),
            *("first-entry", ITALY["Castilla"], "last-entry", ITALY["Norem"]),
        ],
        since="8.6",
    ),
    Step(
        None,
        "XINFO GROUPS race:italy",
        [
            [
                *("name", "italy_riders", "consumers", 3, "pending", 2),
                *("last-delivered-id", "1692632662819-0", "entries-read", 3, "lag", 2),
            ]
        ],
    ),
    Step(
        None,
        "XINFO CONSUMERS race:italy italy_riders",
        [
            ["name", "Alice", "pending", 1, "idle", 177_546, "inactive", 177_546],
            ["name", "Bob", "pending", 0, "idle", 424_686, "inactive", 424_686],
            ["name", "Lora", "pending", 1, "idle", 72_241, "inactive", 72_241],
        ],
        since="7.2",
    ),
    Step(
        None,
        "XINFO HELP",
        [
            Bare(line)
            for line in (
                "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CONSUMERS <key> <groupname>",
                "    Show consumers of <groupname>.",
                "GROUPS <key>",
                "    Show the stream consumer groups.",
                "STREAM <key> [FULL [COUNT <count>]",
                "    Show information about the stream.",
                "HELP",
                "    Print this help.",
            )
        ],
        since="7.2",
    ),
    # Capped streams
    *(capped(ITALY[name]) for name in ("Jones", "Wood", "Henshaw")),
    Step(None, "XLEN race:italy", 2),
    Step(None, "XRANGE race:italy - +", [ITALY["Wood"], ITALY["Henshaw"]]),
    Step(None, "XTRIM race:italy MAXLEN 10", 0),
    Step(None, "XTRIM mystream MAXLEN ~ 10", 0),
    # Removing single items
    Step(None, "XRANGE race:italy - + COUNT 2", [ITALY["Wood"], ITALY["Henshaw"]]),
    Step(None, "XDEL race:italy 1692633208557-0", 1),
    Step(None, "XRANGE race:italy - + COUNT 2", [ITALY["Wood"]]),
    # Releasing messages: with a stream that the text does not show
    Step(None, "XADD mystream 1526569498055-0 field value", "1526569498055-0"),
    Step(None, "XGROUP CREATE mystream mygroup 0", OK),
    Step(
        None,
        "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
        [["mystream", [["1526569498055-0", ["field", "value"]]]]],
    ),
    Step(None, "XNACK mystream mygroup FAIL IDS 1 1526569498055-0", 1, since="8.8"),
    Step(
        None, "XPENDING mystream mygroup - + 10", [["1526569498055-0", "", -1, 1]], since="8.8"
    ),
    Step(
        None, "XADD mystream KEEPREF MAXLEN 1000 * field value", "1692633208557-0", since="8.2"
    ),
    Step(None, "XTRIM mystream ACKED MAXLEN 1000", 0, since="8.2"),
    Step(
        None,
        "XDELEX mystream ACKED IDS 2 1692633198206-0 1692633208557-0",
        [2, 2],  # undelivered as far as the group knows, whether they exist or not
        since="8.2",
    ),
]  # fmt: skip

# Not in the text: what else streams answer, and how they refuse.
FURTHER = [
    "XADD none NOMKSTREAM * a 1",
    "XADD race:france NOMKSTREAM MAXLEN ~ 100 LIMIT 1000 1-1 a 1",
    "XADD s MAXLEN = 2 1-1 a 1",
    'XADD s MAXLEN = 2 1-2 a "two words" \'b b\' "\\xff\\x00\\n"',
    "XADD s MAXLEN = 2 1-3 a 3",
    "XADD s MINID 1-3 1-* a 4",
    "XADD s 0-0 a 1",
    "XADD s x a 1",
    "XADD s * a",
    "XADD s",
    "XRANGE s - +",
    "XRANGE s - + COUNT 0",
    "XRANGE s",
    "XTRIM s MAXLEN",
    "XTRIM s MINID 1-4",
    "XTRIM s NOSUCH 1",
    "XREAD STREAMS s",
    "XREAD STREAMS s none 0 0",
    "XREAD COUNT 1 STREAMS none 0",
    "XREADGROUP GROUP g c STREAMS s >",
    "XREADGROUP GROUP g c STREAMS none >",
    "XGROUP CREATE none g $",
    "XGROUP CREATE s g 0",
    "XGROUP CREATE s g 0",
    "XGROUP CREATECONSUMER s g c",
    "XGROUP CREATECONSUMER s g c",
    "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
    "XREADGROUP GROUP g c NOACK COUNT 5 STREAMS s 0",
    "XPENDING s g",
    "XPENDING s g IDLE 0 - + 5 c",
    "XPENDING s none",
    "XCLAIM s g d 0 1-4 IDLE 5 RETRYCOUNT 3 JUSTID",
    "XCLAIM s g d 0 9-9 FORCE",
    "XCLAIM s none d 0 9-9",
    "XAUTOCLAIM s g c 0 - JUSTID",
    "XAUTOCLAIM s g c 0 0 COUNT 0",
    "XINFO STREAM none",
    "XINFO GROUPS none",
    "XINFO CONSUMERS s none",
    "XINFO NOSUCH",
    "XACK s g 1-4 1-5",
    "XACK s g x",
    "XGROUP SETID s g $",
    "XGROUP DELCONSUMER s g c",
    "XGROUP DESTROY s g",
    "XGROUP DESTROY s g",
    "XSETID s 5-5",
    "XSETID s 1-1",
    "XDEL s 1-4 9-9",
    "SET text word",
    "XLEN text",
    "XADD text * a 1",
    "GET text",
    "TYPE s",
    "MULTI",
    "XADD s 6-1 a 1",
    "XLEN s",
    "XREAD BLOCK 0 STREAMS s $",
    "EXEC",
    "MULTI",
    "XADD s",
    "EXEC",
    "MULTI",
    "DISCARD",
    "DISCARD",
    "EXEC",
    "WATCH s",
    "UNWATCH",
    "SELECT 1",
    "XLEN s",
    "SELECT 99",
    "SELECT 0",
    "PING",
    "PING hello",
    "ECHO 'a b'",
    "NOSUCH a b",
    "DEL s text",
]


@pytest.fixture
def pair(start: Start) -> Iterator[tuple[Running, RedisServer, Clocks]]:
    """tidelog and a redis-server on one clock."""
    with clocked_redis() as (theirs, clocks):
        yield start(clock=clocks.ours), theirs, clocks


def wait_until_blocked(*clients: redis.Redis) -> None:
    def blocked() -> bool:
        return all(client.info("clients")["blocked_clients"] == 1 for client in clients)

    until(blocked, "it does not block")


def without_seconds(text: str) -> str:
    """redis-cli tells how long a command took if that was half a second."""
    return re.sub(r"\n\(\d+\.\d+s\)$", "", text)


def test_the_introduction(pair: tuple[Running, RedisServer, Clocks]) -> None:
    running, theirs, clocks = pair
    clients = running.client(), redis.Redis(unix_socket_path=str(theirs.socket), protocol=2)
    with Typed("-p", str(running.port)) as ours, Typed("-s", str(theirs.socket)) as real:
        for step in INTRODUCTION:
            if step.at is not None:
                clocks.set(step.at)
            ours.send(step.line)
            real.send(step.line)
            if step.after:
                wait_until_blocked(*clients)
                clocks.advance(step.after + 1)
            found, theirs_shown = without_seconds(ours.shown()), without_seconds(real.shown())
            assert found == shown(step.reply), step.line
            if not step.since:
                assert found == theirs_shown, step.line
        wait_for_one(ours, clients[0], "race:france")
    for client in clients:
        client.close()


def wait_for_one(typed: Typed, client: redis.Redis, key: str) -> None:
    """`XREAD BLOCK 0`, which the text leaves without a reply."""
    typed.send(f"XREAD BLOCK 0 STREAMS {key} $")
    wait_until_blocked(client)
    id: Any = client.xadd(key, {"rider": "Royce", "speed": 1})
    entry = [id.decode(), ["rider", "Royce", "speed", "1"]]
    assert without_seconds(typed.shown()) == shown([[key, [entry]]])


@pytest.mark.parametrize("protocol", [2, 3])
def test_what_the_text_leaves_out(pair: tuple[Running, RedisServer, Clocks], protocol: int) -> None:
    running, theirs, clocks = pair
    options = ["-3"] if protocol == 3 else []
    with (
        Typed("-p", str(running.port), *options) as ours,
        Typed("-s", str(theirs.socket), *options) as real,
    ):
        for step in INTRODUCTION:
            if step.at is not None:
                clocks.set(step.at)
            if not step.since and not step.after:
                assert ours.type(step.line) == real.type(step.line), step.line
        for line in FURTHER:
            clocks.advance(10)
            assert ours.type(line) == real.type(line), line


@pytest.fixture
def ports(start: Start, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Of tidelog and of a redis-server, with the system's clock."""
    with real_redis(tmp_path) as port:
        yield start().port, port


@pytest.mark.parametrize(
    "form", ["", "--raw", "--no-raw", "--csv", "--json", "--quoted-json"], ids=lambda form: form or "plain"
)  # fmt: skip
@pytest.mark.parametrize("protocol", [[], ["-3"]], ids=["RESP2", "RESP3"])
def test_one_command_at_a_time(ports: tuple[int, int], form: str, protocol: list[str]) -> None:
    lines = [
        "XADD s 1-1 a 1 b \xe4",
        "XADD s 1-1 a 1",
        "XADD s 2-1 c 3",
        "XRANGE s - +",
        "XREAD STREAMS s none 0 0",
        "XREAD STREAMS none 0",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
        "XPENDING s g",
        "XINFO GROUPS s",
        "XACK s g 1-1",
        "XAUTOCLAIM s g c 0 -",
        "XLEN",
        "GET none",
        "PING",
    ]
    for line in lines:
        words = [*([form] if form else []), *protocol, "-e", *line.split()]
        ours, theirs = (run(["-p", str(port)], *words) for port in ports)
        assert ours == theirs, line
        if "json" in form and ours[0] == 0:
            json.loads(ours[1])


def test_commands_from_a_file(pair: tuple[Running, RedisServer, Clocks]) -> None:
    running, theirs, _ = pair
    text = "".join(f"{line}\n" for line in FURTHER).encode()
    ours = run(["-p", str(running.port), "--no-raw"], stdin=text)
    assert ours == run(["-s", str(theirs.socket), "--no-raw"], stdin=text)


def test_options_of_redis_cli(ports: tuple[int, int]) -> None:
    port = str(ports[0])
    piped = "".join(f"XADD p {n}-1 n {n}\r\n" for n in range(1, 10_001)).encode()
    code, text = run(["-p", port, "--pipe"], stdin=piped)
    assert code == 0 and "errors: 0, replies: 10000" in text
    assert run(["-p", port], "XLEN", "p") == (0, "10000\n")
    assert run(["-p", port, "-x"], "XADD", "x", "1-1", "last", stdin=b"from stdin")[0] == 0
    assert run(["-p", port], "XRANGE", "x", "-", "+") == (0, "1-1\nlast\nfrom stdin\n")
    assert run(["-p", port, "-r", "3", "-i", "0"], "XADD", "r", "*", "a", "1")[0] == 0
    assert run(["-p", port], "XLEN", "r") == (0, "3\n")
    assert run(["-p", port, "-n", "2"], "XLEN", "p") == (0, "0\n")
    assert run(["-u", f"redis://127.0.0.1:{port}/0"], "XLEN", "p") == (0, "10000\n")
    assert sorted(run(["-p", port, "--scan"])[1].split()) == ["p", "r", "x"]
    assert run(["-p", port, "--scan", "--pattern", "p*"]) == (0, "p\n")
    code, text = run(["-p", port, "--bigkeys", "-i", "0"])
    assert code == 0 and "3 streams with 10004 entries" in text
    code, text = run(["-p", port, "--memkeys", "-i", "0"])
    assert code == 0 and "Biggest stream found" in text
    code, text = run(["-p", port, "INFO", "server"])
    assert code == 0 and "redis_version:8.8.0" in text.splitlines()


@pytest.mark.parametrize("which", [0, 1], ids=["tidelog", "redis-server"])
def test_listening(ports: tuple[int, int], which: int) -> None:
    """SUBSCRIBE and MONITOR show what others do until they are interrupted."""
    port = str(ports[which])
    found: dict[str, str] = {}

    def listen(*words: str) -> None:
        found[words[0]] = run(["-p", port, "--no-raw"], *words)[1]

    threads = [
        threading.Thread(target=listen, args=words)
        for words in (("SUBSCRIBE", "news"), ("MONITOR",))
    ]
    with redis.Redis(port=ports[which], protocol=2) as client:
        for thread in threads:
            thread.start()
        until(lambda: len({each["flags"] for each in client.client_list()} & {"P", "O"}) == 2)
        client.publish("news", "first one")
        client.xadd("s", {"a": "1 2"}, id="1-1")
        for each in client.client_list():
            if each["flags"] in ("P", "O"):
                client.client_kill_filter(_id=each["id"])
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert '1) "message"\n2) "news"\n3) "first one"' in found["SUBSCRIBE"]
    assert re.search(
        r'\d+\.\d+ \[0 127\.0\.0\.1:\d+\] "XADD" "s" "1-1" "a" "1 2"', found["MONITOR"]
    )
