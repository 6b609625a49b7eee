"""Random commands of the whole table, right, wrong and malformed, for sessions beside a real server.

Streams, strings and keys come from the grammar of the oracle; the rest, what a server has besides its data, from LINES.
A few words of any command may be missing, doubled, of another case, or others.
"""

from __future__ import annotations

import random
from typing import Final

from tests.oracle.grammar import Grammar, Grammar82
from tests.oracle.server import EIGHT, SEVEN, Release

from tidelog.engine.rdb.file import payload_of

Command = list[bytes]

# {k} a key, {s} a stream, {i} a number, {u} a user, {c} a channel, {m} a command, {p} a payload, {r} a rule, {g} a
# pattern; \x20 a blank inside a word
LINES: Final = r"""
PING|PING x|PING x y|ECHO {k}|ECHO|SELECT {i}|SELECT 1|SELECT 0|DBSIZE|TIME|LASTSAVE|RESET|LOLWUT VERSION 1
HELLO|HELLO 2|HELLO 3|HELLO 4|HELLO x|HELLO 2 AUTH default x|HELLO 3 SETNAME n|HELLO 2 SETNAME {k}|HELLO 3 AUTH {u} pw
HELLO 2 WHAT|AUTH pw|AUTH {u} pw|AUTH {u} wrong|AUTH default x|AUTH a b c
CLIENT ID|CLIENT GETNAME|CLIENT SETNAME {k}|CLIENT SETNAME a\x20b|CLIENT INFO|CLIENT LIST|CLIENT LIST TYPE normal
CLIENT LIST TYPE x|CLIENT LIST ID {i}|CLIENT LIST ID|CLIENT LIST WHAT|CLIENT KILL 1.2.3.4:5|CLIENT KILL ID 999999
CLIENT KILL ID x|CLIENT KILL TYPE x|CLIENT KILL USER nobody|CLIENT KILL ADDR 1.2.3.4:5|CLIENT KILL LADDR 1.2.3.4:5
CLIENT KILL SKIPME maybe|CLIENT KILL ID|CLIENT UNBLOCK {i}|CLIENT UNBLOCK 999999 ERROR|CLIENT UNBLOCK 1 x|CLIENT UNPAUSE
CLIENT PAUSE x|CLIENT PAUSE -1|CLIENT PAUSE 1 x|CLIENT REPLY x|CLIENT REPLY ON|CLIENT NO-EVICT ON|CLIENT NO-EVICT OFF
CLIENT NO-EVICT x|CLIENT NO-TOUCH ON|CLIENT NO-TOUCH OFF|CLIENT NO-TOUCH x|CLIENT SETINFO LIB-NAME lib
CLIENT SETINFO LIB-VER 1.0|CLIENT SETINFO WHAT 1|CLIENT SETINFO LIB-NAME a\x20b|CLIENT TRACKING OFF|CLIENT TRACKING x
CLIENT TRACKINGINFO|CLIENT GETREDIR|CLIENT CACHING YES|CLIENT CACHING x|CLIENT HELP|CLIENT WHAT|CLIENT
CONFIG GET maxmemory|CONFIG GET stream-node-max-*|CONFIG GET nosuch|CONFIG GET timeout tcp-keepalive|CONFIG GET [
CONFIG GET
CONFIG SET stream-node-max-entries {i}|CONFIG SET stream-node-max-bytes 4096|CONFIG SET stream-node-max-entries
CONFIG SET nosuch 1|CONFIG SET timeout x|CONFIG SET timeout -1|CONFIG SET slowlog-max-len {i}
CONFIG SET slowlog-max-len 128|CONFIG SET notify-keyspace-events KEA|CONFIG SET notify-keyspace-events q
CONFIG SET maxmemory x|CONFIG SET timeout 0 timeout 0|CONFIG RESETSTAT|CONFIG REWRITE|CONFIG HELP|CONFIG WHAT
ACL WHOAMI|ACL USERS|ACL LIST|ACL CAT|ACL CAT stream|ACL CAT {m}|ACL GETUSER {u}|ACL GETUSER default|ACL GENPASS
ACL GENPASS 5|ACL GENPASS 5000|ACL GENPASS x|ACL SETUSER {u} {r}|ACL SETUSER {u} {r} {r}|ACL SETUSER {u} {r} {r} {r}
ACL SETUSER {u}|ACL SETUSER a\x20b|ACL DELUSER {u}|ACL DELUSER default|ACL DRYRUN {u} {m}|ACL DRYRUN {u} GET {k}
ACL DRYRUN {u} XADD {k} * f v|ACL DRYRUN nobody GET a|ACL DRYRUN default GET|ACL LOG RESET|ACL LOG x|ACL LOG -1|ACL LOAD
ACL SAVE|ACL HELP|ACL WHAT|ACL SETUSER {u} reset on >pw +@all ~*|ACL SETUSER {u} on nopass +@read +@connection ~a*
COMMAND COUNT|COMMAND INFO {m}|COMMAND INFO {m} {m} nosuch|COMMAND GETKEYS {m}|COMMAND GETKEYS GET {k}
COMMAND GETKEYS XREAD STREAMS a b 0 0|COMMAND GETKEYS MSET a b c d|COMMAND GETKEYSANDFLAGS SET a b GET
COMMAND GETKEYSANDFLAGS XREADGROUP GROUP g c STREAMS a >|COMMAND LIST FILTERBY MODULE x|COMMAND LIST FILTERBY WHAT x
COMMAND LIST FILTERBY ACLCAT nosuch|COMMAND LIST FILTERBY PATTERN xinf*|COMMAND LIST x|COMMAND DOCS nosuch|COMMAND HELP
COMMAND WHAT|SLOWLOG LEN|SLOWLOG RESET|SLOWLOG GET x|SLOWLOG GET -2|SLOWLOG HELP|SLOWLOG WHAT
LATENCY RESET|LATENCY LATEST|LATENCY HISTORY x|LATENCY HELP|LATENCY WHAT|LATENCY HISTOGRAM nosuch
MEMORY USAGE {k}|MEMORY USAGE {k} SAMPLES {i}|MEMORY USAGE {k} WHAT 1|MEMORY DOCTOR|MEMORY PURGE|MEMORY HELP|MEMORY WHAT
OBJECT ENCODING {k}|OBJECT FREQ {k}|OBJECT IDLETIME {k}|OBJECT REFCOUNT {k}|OBJECT HELP|OBJECT WHAT {k}|OBJECT ENCODING
PUBLISH {c} x|SPUBLISH {c} x|PUBSUB CHANNELS|PUBSUB CHANNELS {g}|PUBSUB NUMSUB|PUBSUB NUMSUB {c} {c}|PUBSUB NUMPAT
PUBSUB SHARDCHANNELS|PUBSUB SHARDNUMSUB {c}|PUBSUB HELP|PUBSUB WHAT
MULTI|MULTI|MULTI x|EXEC|EXEC|EXEC x|DISCARD|WATCH {k}|WATCH {k} {k}|WATCH|UNWATCH|MULTI|EXEC
DUMP {k}|DUMP {s}|DUMP|RESTORE {k} 0 {p}|RESTORE {k} {i} {p}|RESTORE {k} 0 {p} REPLACE|RESTORE {s} 0 {p} REPLACE
RESTORE {k} {i} {p} REPLACE ABSTTL|RESTORE {k} 0 {p} IDLETIME {i}|RESTORE {k} 0 {p} FREQ {i} REPLACE|RESTORE {k} 0 x
RESTORE {s} 0 {p} REPLACE IDLETIME 10|XINFO STREAM {s}|XINFO HELP|XGROUP HELP|XINFO WHAT {s}|XRANGE {s} - +|GET {k}
SCRIPT EXISTS a b|SCRIPT FLUSH|SCRIPT FLUSH x|SCRIPT HELP|SCRIPT KILL|SCRIPT WHAT|EVALSHA x 0
EVALSHA ffffffffffffffffffffffffffffffffffffffff 0|EVALSHA ffffffffffffffffffffffffffffffffffffffff x|FUNCTION LIST
FUNCTION HELP|FUNCTION FLUSH|FUNCTION KILL|FUNCTION DELETE x|FUNCTION WHAT|FUNCTION STATS
KEYS {g}|SCAN {i}|SCAN 0 MATCH {g} COUNT 100|SCAN 0 TYPE x|SCAN x|SCAN 0 COUNT 0|RANDOMKEY|TYPE {k}|TOUCH {k} {s}
WAIT 0 0|WAIT x 0|WAIT 0 -1|WAIT 0 x|WAIT|ROLE|REPLICAOF x|FAILOVER x|INFO nosuch|INFO server|SHUTDOWN x|QUIT x y
GET {k}|SET {k} {i}|INCR {k}|DEL {k}|EXISTS {k} {k}|FLUSHALL x|FLUSHDB SYNC|SWAPDB 0 {i}|COPY {k} {s}|MOVE {k} {i}
NOSUCH|NOSUCH {k} {i}|nosuch\x20x a|GET|GET a b|{m}|{m} {k}|{m} {k} {i}
"""
NEWER: Final = ("CLIENT SETINFO", "CLIENT NO-TOUCH")  # than 7.0
# Commands whose words stay as they are: another word could end or stop the connection, or the server.
FIXED: Final = frozenset(
    b"QUIT SHUTDOWN CLIENT REPLICAOF FAILOVER WAIT CONFIG LOLWUT SUBSCRIBE PSUBSCRIBE SSUBSCRIBE MONITOR".split()
)
NODE_SIZES: Final = ([b"stream-node-max-entries"], [b"stream-node-max-bytes"])
# The names for {m}. They may be run, too, with any words.
NAMES: Final = (
    b"get set del xadd xread xrange xinfo xgroup object memory mget msetnx getex incrby append type copy rename move "
    b"expire ttl persist xack xclaim xpending xautoclaim xdel xtrim xlen xsetid strlen exists touch dump restore multi "
    b"exec watch publish pubsub slowlog command acl ping echo select dbsize keys scan".split()
)
KEYS: Final = (b"a", b"b", b"s", b"t", b"", b"missing")
STREAMS: Final = (b"s", b"t", b"b")
NUMBERS: Final = (
    b"0 1 2 -1 3 10 100 300000 x 1.5 01 +1 9223372036854775807 9223372036854775808".split()
)
USERS: Final = (b"ann", b"bob")
CHANNELS: Final = (b"news", b"other", b"")
PATTERNS: Final = (b"*", b"?", b"n*", b"[a-s]", b"[", b"\\", b"")
JUNK: Final = (
    b"",
    b"x",
    b"\r\n",
    b"\x00",
    b"-",
    b"*",
    b"$",
    b"0",
    b"{",
    b"\xff\xfe",
    b"a" * 200,
    b"COUNT",
    b"NX",
)
RULES: Final = (
    b"on off >pw <pw nopass resetpass ~* ~a* %R~b* %W~s allkeys resetkeys &* &n* resetchannels +@all -@all +get -get "
    b"+@read -@stream +xinfo|stream -config|set +@nosuch +nosuch ~ >  sanitize-payload skip-sanitize-payload reset "
    b"#zz allcommands nocommands what".split(b" ")
)
# A string, and a stream with the entry 1-1, as a 7.0 and every later release load them.
_STREAM: Final = bytes.fromhex(
    "0110000000000000000100000000000000011d1d0000000a0001010001010181660200010201000100018176020401ff010101010101000001"
    "0000"
)
PAYLOADS: Final = (
    payload_of(0, b"\x01x", 10),
    payload_of(0, b"\xc0\x07", 9),
    payload_of(0, b"\xc3\x04\x05\x00a\x80\x00", 10),
    payload_of(19, _STREAM, 10),
    payload_of(19, _STREAM, 10)[:-1] + b"\x00",
    payload_of(0, b"\x01x", 99),
    payload_of(77, b"\x01x", 10),
    payload_of(0, b"\xff\xff\xff", 10),
    b"",
    b"short",
)


class Words:
    """The commands of one session. `release` is that of the other server."""

    def __init__(self, r: random.Random, release: Release, now: int) -> None:
        self.r = r
        self._now = now
        self._release = release
        lines = [line for line in LINES.strip().replace("\n", "|").split("|") if line]
        if release is not EIGHT:
            lines = [line for line in lines if not line.startswith(NEWER)]
        self._lines = [line.split(" ") for line in lines]
        self._grammar: Grammar = Grammar82(r) if release is EIGHT else Grammar(r)
        self._waiting: list[Command] = []
        self._choices: dict[str, tuple[bytes, ...] | list[bytes]] = {
            "{k}": KEYS, "{s}": STREAMS, "{i}": NUMBERS, "{u}": USERS, "{c}": CHANNELS, "{m}": NAMES, "{p}": PAYLOADS,
            "{r}": RULES, "{g}": PATTERNS,
        }  # fmt: skip

    def command(self) -> Command:
        """One command that has one reply at once."""
        r = self.r
        args = self._line() if r.random() < 0.6 else self._of_the_oracle()
        if args[0].upper() not in FIXED and r.random() < 0.25:
            args = self._changed(args)
        return self._as_known(_at_once(args))

    def _as_known(self, args: Command) -> Command:
        """PING for a command after which the other server would hold other data, or another name of the client."""
        name = args[0].upper()
        if name in (b"HELLO", b"CLIENT") and any(b"\0" in word for word in args):
            return [b"PING"]
        if self._release is SEVEN and (
            name == b"XSETID"
            or (name == b"HELLO" and len(args) > 4 and [len(args), args[2].upper()] != [5, b"AUTH"])
            or (name == b"COMMAND" and len(args) == 3 and args[1].upper().startswith(b"GETKEYS"))
        ):
            return [b"PING"]
        return args

    def _line(self) -> Command:
        words = self.r.choice(self._lines)
        return [
            self.r.choice(self._choices[word])
            if word in self._choices
            else word.encode().replace(b"\\x20", b" ")
            for word in words
        ]

    def _of_the_oracle(self) -> Command:
        while not self._waiting:
            self._grammar.now = self._now
            self._waiting = list(self._grammar.turn().commands)
        args = self._waiting.pop(0)
        return args if args[0].upper() != b"XADDMANY" else [b"XLEN", args[1]]

    def _changed(self, args: Command) -> Command:
        r, out = self.r, list(args)
        for _ in range(r.choice((1, 1, 1, 2))):
            at = r.randrange(len(out))
            way = r.random()
            if way < 0.25 and at:
                del out[at]
            elif way < 0.4:
                out.insert(at + 1, out[at])
            elif way < 0.6:
                out.insert(at + 1, r.choice(JUNK))
            elif way < 0.8:
                out[at] = out[at].swapcase()
            elif at:
                out[at] = r.choice((*JUNK, *NUMBERS))
        if out[0].upper() in FIXED or not out[0]:
            return args
        return out


def _at_once(args: Command) -> Command:
    """Without words that make a command wait for others, or make the server send without being asked."""
    name = args[0].upper()
    if name in (b"XREAD", b"XREADGROUP"):
        return [b"COUNT" if word.upper() == b"BLOCK" else word for word in args]
    if name == b"ACL" and len(args) > 2 and args[1].upper() == b"SETUSER":
        # Others would outlive the session.
        return [*args[:2], args[2] if args[2] in USERS else USERS[0], *args[3:]]
    if name[:1] == b"X":
        # Trims by these policies changed after 8.2; the oracle computes the reply of an 8.2.
        gone = (b"ACKED", b"DELREF") if name in (b"XADD", b"XTRIM") else (b"ACKED",)
        return [b"KEEPREF" if word.upper() in gone else word for word in args]
    return args


def chunks(r: random.Random, release: Release, now: int) -> list[list[Command]]:
    """A session that begins at `now`: commands that are sent together, time after time."""
    words = Words(r, release, now)
    out: list[list[Command]] = [[]]
    left = 0
    for _ in range(r.choice((20, 60, 120))):
        args = words.command()
        if args[0].upper() in (b"AUTH", b"HELLO") or args[2:3] in NODE_SIZES:
            # 8.2 does not answer a wrong password if another reply is still to be sent. A transaction here runs CONFIG
            # SET behind its commands about data, and later replies show the size of a node by which they were run.
            out += [[b"DISCARD"]], [args], []
        else:
            if not left:
                left = r.choice((1, 5, 20, 20))
                out.append([])
            left -= 1
            out[-1].append(args)
    return [chunk for chunk in out if chunk]


def prelude() -> list[Command]:
    """Some data to begin with."""
    lines = (
        b"RESET", b"FLUSHALL", b"ACL DELUSER ann bob", b"ACL LOG RESET", b"CONFIG SET stream-node-max-entries 100",
        b"CONFIG SET stream-node-max-bytes 4096", b"CONFIG SET slowlog-max-len 128", b"SET a 1", b"XADD s 1-1 f v",
        b"XADD s 2-1 f w g x", b"XGROUP CREATE s g 0", b"XREADGROUP GROUP g alice COUNT 1 STREAMS s >", b"SET b text",
    )  # fmt: skip
    return [line.split() for line in lines]


# Parts of what a client sends, as bytes; most end where a command does.
SENT: Final = tuple(
    line.encode().decode("unicode_escape").encode("latin-1")
    for line in r"""
PING\r\n
PING x\r\n
ping\n
 PING\r\n
\r\n
\n
GET a\r\n
SET a "x y"\r\n
SET a 'x\\'y'\r\n
SET a "\\x41\\n"\r\n
GET "a
GET "a"b\r\n
GET 'a\r\n
ECHO \xff\x01x\r\n
*1\r\n$4\r\nPING\r\n
*2\r\n$3\r\nGET\r\n$1\r\na\r\n
*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n
*2\r\n$4\r\nECHO\r\n$0\r\n\r\n
*0\r\n
*-1\r\n
*\r\n
*x\r\n
*1x\r\n
*1\r\nPING\r\n
*1\r\n$x\r\n
*1\r\n$-1\r\n
*1\r\n$4\r\nPINGxx
*2\r\n$4\r\nECHO\r\n:1\r\n
*1\r\n$ 4\r\nPING\r\n
*1\r\n$04\r\nPING\r\n
* 1\r\n$4\r\nPING\r\n
*+1\r\n$4\r\nPING\r\n
*1048577\r\n
*9999999999\r\n
*1\r\n$536870913\r\n
*1\r\n$9999999999999999999\r\n
*2\r\n$3\r\nGET\r\n$10\r\nab\r\n
*1\n$4\nPING\n
$4\r\nPING\r\n
+PING\r\n
GET / HTTP/1.1\r\n
XADD s 9-1 f v\r\n
XLEN s\r\n
XRANGE s - +\r\n
HELLO 3\r\n
HELLO 2\r\n
MULTI\r\n
EXEC\r\n
SUBSCRIBE news\r\n
SUBSCRIBE news news\r\n
UNSUBSCRIBE\r\n
UNSUBSCRIBE news\r\n
PSUBSCRIBE n*\r\n
PUNSUBSCRIBE\r\n
SSUBSCRIBE news\r\n
SUNSUBSCRIBE\r\n
PUBLISH news x\r\n
CLIENT REPLY OFF\r\n
CLIENT REPLY ON\r\n
CLIENT REPLY SKIP\r\n
RESET\r\n
QUIT\r\n
NOSUCH a b\r\n
SELECT 3\r\n
""".splitlines()
    if line
)


def wire(r: random.Random, release: Release) -> bytes:
    """Bytes of a client that may be none of Redis: good parts and bad ones, some of them cut or changed."""
    out = bytearray()
    for _ in range(r.choice((1, 3, 8, 15))):
        part = bytearray(r.choice(SENT))
        if r.random() < 0.08:
            del part[r.randrange(len(part)) :]
        if part and r.random() < 0.08:
            part[r.randrange(len(part))] = r.choice((1, 10, 13, 32, 36, 42, 48, 57, 255))
        out += part
    # For 7.0 an empty line is a command that CLIENT REPLY SKIP leaves without a reply.
    return bytes(out) if release is EIGHT else bytes(out).replace(b"SKIP", b"ON")
