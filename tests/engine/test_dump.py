"""DUMP and RESTORE: what comes back, in which format, the errors in Redis's order, and payloads that were changed."""

from __future__ import annotations

import random

import pytest
from tests.engine.driver import Engine
from tests.fuzz.twist import changed
from tests.oracle.played import played
from tests.rounds import rest_slow

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide
from tidelog.engine.commands.rewrite import Lost
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import DEL, RESTORE, SET
from tidelog.engine.effects.events import events
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.file import payload_of
from tidelog.engine.rdb.write import RdbTarget, dump, oldest

STREAM, ONE, TWO = "XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >"
NOW = 1_000_000


def made(*lines: str) -> Engine:
    engine = Engine()
    engine.now = NOW
    for line in lines:
        engine(line)
    return engine


def text(version: int, data: bytes = b"\x01x") -> bytes:
    return payload_of(0, data, version)


@pytest.mark.parametrize(
    ("lines", "kind", "version"),
    [
        (["SET s v"], 0, 10),
        ([STREAM], 19, 10),
        ([STREAM, ONE, TWO], 19, 10),  # seen and active at the same time
        ([STREAM, ONE, "XGROUP CREATECONSUMER s g c"], 21, 11),  # never active
        (["XADD s IDMP p i * f v"], 26, 13),
        ([STREAM, "XCFGSET s IDMP-MAXSIZE 5"], 26, 13),
        ([STREAM, ONE, TWO, "XNACK s g FAIL IDS 1 1-1"], 27, 14),
    ],
)
def test_the_format_is_the_oldest_that_loses_nothing(
    lines: list[str], kind: int, version: int
) -> None:
    engine = made(*lines)
    payload = engine.raw("DUMP", "s")
    assert (payload[0], int.from_bytes(payload[-10:-8], "little")) == (kind, version)
    before = digest(engine.state)
    assert engine("RESTORE s 0", payload, "REPLACE") == "OK"
    assert digest(engine.state) == before
    engine.check()


def test_a_missing_key_has_no_payload() -> None:
    assert made().raw("DUMP", "s") is None


@pytest.mark.parametrize("seed", rest_slow(range(6), 2))
def test_any_value_comes_back(seed: int) -> None:
    """In its place, with its expiry: the state is the same, unless the newest format loses something, too."""
    source, now = played(random.Random(seed), 60)
    ctx = Context(source.state, Settings())
    ctx.now = now
    restored = 0
    for ctx.db, database in enumerate(source.state.databases):
        for key, value in list(database.keys.items()):
            lost = Lost()
            dump(key, value, oldest(value), lost, ctx.db)
            before = digest(source.state)
            at = b"%d" % max(database.keys.expire_at(key), 0) if database.expires.get(key) else b"0"
            payload = decide(ctx, [b"DUMP", key])
            ctx.effects = []
            assert decide(ctx, [b"RESTORE", key, at, payload, b"REPLACE", b"ABSTTL"]) == b"OK"
            applier(source.state)(ctx.effects)
            if not lost:
                restored += 1
                assert digest(source.state) == before, (seed, key)
    assert restored, seed


# fmt: off
ERRORS: list[tuple[list[bytes | str], str]] = [
    (["s", "0", text(10)],                               "-BUSYKEY Target key name already exists."),
    (["s", "-1", b""],                                   "-BUSYKEY Target key name already exists."),
    (["s", "0", b"", "ABSENT"],                          "-ERR syntax error"),
    (["n", "x", text(10)],                               "-ERR value is not an integer or out of range"),
    (["n", "-1", text(10)],                              "-ERR Invalid TTL value, must be >= 0"),
    (["n", "0", b""],                                    "-ERR DUMP payload version or checksum are wrong"),
    (["n", "0", text(16)],                               "-ERR DUMP payload version or checksum are wrong"),
    (["n", "0", text(10)[:-8] + bytes(8)],               "-ERR DUMP payload version or checksum are wrong"),
    (["n", "0", text(10)[:-1]],                          "-ERR DUMP payload version or checksum are wrong"),
    (["n", "0", payload_of(200, b"\x01x", 10)],          "-ERR Bad data format"),
    (["n", "0", payload_of(19, b"\x05x", 10)],           "-ERR Bad data format"),
    (["n", "0", text(10, b"\x20x")],                     "-ERR Bad data format"),
    (["n", "0", text(10)[3:-8] + crc64(text(10)[3:-8]).to_bytes(8, "little")], "-ERR Bad data format"),
    (["n", "0", payload_of(1, b"\x01\x01x", 10)],
     "-ERR Bad data format: the payload holds a value of the type list; tidelog stores streams and strings"),
    (["n", "0", payload_of(16, b"\x01x", 10)],
     "-ERR Bad data format: the payload holds a value of the type hash; tidelog stores streams and strings"),
    (["n", "0", text(10), "IDLETIME"],                   "-ERR syntax error"),
    (["n", "0", text(10), "IDLETIME", "x"],              "-ERR value is not an integer or out of range"),
    (["n", "0", text(10), "IDLETIME", "-1"],             "-ERR Invalid IDLETIME value, must be >= 0"),
    (["n", "0", text(10), "FREQ", "256"],                "-ERR Invalid FREQ value, must be >= 0 and <= 255"),
    (["n", "0", text(10), "FREQ", "-1"],                 "-ERR Invalid FREQ value, must be >= 0 and <= 255"),
    (["n", "0", text(10), "FREQ", "1", "IDLETIME", "1"], "-ERR syntax error"),
    (["n", "0", text(10), "IDLETIME", "1", "FREQ", "1"], "-ERR syntax error"),
]
# fmt: on


@pytest.mark.parametrize(("words", "line"), ERRORS)
def test_what_restore_refuses(words: list[bytes | str], line: str) -> None:
    engine = made(STREAM)
    before = digest(engine.state)
    assert engine("RESTORE", *words) == line
    assert engine.log == made(STREAM).log and digest(engine.state) == before


@pytest.mark.parametrize("version", [0, 6, 9, 10, 11, 12, 13, 14, 15])
def test_any_version_up_to_ours_is_taken(version: int) -> None:
    engine = made()
    assert engine("RESTORE n 0", text(version)) == "OK"
    assert engine("GET n") == "x"


@pytest.mark.parametrize(
    ("words", "expires", "effects"),
    [
        (["0"], -1, [RESTORE]),
        (["500"], 500, [RESTORE]),
        ([f"{NOW + 1}", "ABSTTL"], 1, [RESTORE]),
        ([f"{NOW}", "ABSTTL"], -2, [DEL]),
        (["1", "ABSTTL"], -2, [DEL]),
        (["0", "ABSTTL"], -1, [RESTORE]),
        (["9223372036854775807"], -2, [DEL]),
    ],
)
def test_when_the_key_expires(words: list[str], expires: int, effects: list[int]) -> None:
    """With REPLACE over a key that has another expiry; without a key that is replaced nothing is deleted."""
    for there in (True, False):
        engine = made(*(["SET n old PX 7000"] if there else []))
        ttl, *rest = words
        assert engine("RESTORE n", ttl, text(10), *rest, "REPLACE") == "OK"
        assert [effect[0] for effect in engine.effects] == (
            effects if there or effects != [DEL] else []
        )
        assert engine("PTTL n") == expires
        engine.check()


def test_an_expired_key_is_in_nobodys_way() -> None:
    engine = made("SET n old PX 10")
    engine.now += 11
    assert engine("RESTORE n 0", text(10)) == "OK"
    assert [effect[0] for effect in engine.effects] == [DEL, RESTORE]


def test_the_idle_time_is_the_given_one() -> None:
    engine = made()
    engine("RESTORE n 0", text(10), "IDLETIME", "300")
    assert engine("OBJECT IDLETIME n") == 300
    assert engine("RESTORE n 0", text(10), "REPLACE", "FREQ", "255") == "OK"
    assert engine("OBJECT IDLETIME n") == 0


def test_bytes_behind_the_value_are_not_stored() -> None:
    engine = made()
    engine("RESTORE n 0", text(10, b"\x01xyz"))
    assert engine.effects == [(RESTORE, 0, b"n", 0, b"\x01x", -1)]


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ([], []),
        (["SET n 1"], [b"overwritten", b"type_changed"]),
        (["XADD n 1-1 f v"], [b"overwritten"]),
    ],
)
def test_the_events(before: list[str], told: list[bytes]) -> None:
    """As 8.2 tells them: the key is new even if there was one."""
    engine = made(STREAM, *before)
    effect = (RESTORE, 0, b"n", 19, b"", -1)
    names = [name for _, name, _, _ in events(effect, engine.state, engine.now)]
    assert names == [b"new", b"restore", *told]
    kept = [name for _, name, _, _ in events((SET, 0, b"m", b"", -1), engine.state, engine.now)]
    assert kept == [b"new", b"set"]


def outcome(seed: int) -> tuple[int, int]:
    """Payloads of a random state with other bytes under a checksum that holds -> how many were taken and refused."""
    r = random.Random(seed)
    source, _ = played(r, 30)
    taken = refused = 0
    for target in RdbTarget:
        for db, database in enumerate(source.state.databases):
            for key, value in database.keys.items():
                payload = dump(key, value, target, Lost(), db)
                body = changed(payload[:-8], r, 0, len(payload) - 8)
                engine = Engine()
                try:
                    engine.raw("RESTORE", "n", 0, body + crc64(body).to_bytes(8, "little"))
                    taken += 1
                except CommandError:
                    assert not engine.effects and digest(engine.state) == digest(State())
                    refused += 1
                engine.check()
    return taken, refused


def test_changed_payloads_are_refused_or_sound() -> None:
    counts = [outcome(seed) for seed in range(8)]
    assert all(map(sum, zip(*counts))), counts


@pytest.mark.slow
def test_many_changed_payloads_are_refused_or_sound() -> None:
    for seed in range(1000, 2000):
        outcome(seed)
