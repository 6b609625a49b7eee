"""tidelog aof verify: one way to fail for every check, each with its own exit code."""

import contextlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest
from tests.oracle.grammar import Grammar
from tests.rounds import rest_slow
from tests.tools.conftest import Run, expect
from tests.tools.damaged import header, missing_last, promised_frame, store_file
from tests.tools.made import T0, Made, packed

import tidelog
from tidelog.aof import durable
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import END
from tidelog.engine.streams.block import encode_run
from tidelog.tools import exits
from tidelog.tools.aof import verify as aof_verify
from tidelog.tools.aof.fields import KINDS


def test_output(run: Run, made: Made) -> None:
    done = run("aof", "verify", made.root)
    assert (done.code, done.err) == (0, "")
    expect("verify.txt", done.out, made.root)


def append(*unit: e.Effect) -> Callable[[Made], None]:
    def damage(made: Made) -> None:
        made.unit(T0 + 5000, *unit)
        made.write()

    return damage


def append_raw(body: bytes, count: int = 1) -> Callable[[Made], None]:
    def damage(made: Made) -> None:
        made.raw(T0 + 5000, body, count)
        made.write()

    return damage


def torn_tail(made: Made) -> None:
    made.cut(made.offsets[-1] + 20)


def unreadable_durable(made: Made) -> None:
    (made.root / "aof" / durable.NAME).write_bytes(b"\x55" * durable.FILE_BYTES)


def time_goes_back(made: Made) -> None:
    made.unit(T0 + 10, (e.PERSIST, 3, b"session"))
    made.write()


def missing_first(made: Made) -> None:
    made.path(0).unlink()


def cut_in_the_middle(made: Made) -> None:
    made.cut(443, number=0)


def foreign(made: Made) -> None:
    (made.root / "aof" / "00000000000000000014.aof").write_bytes(made.path().read_bytes())


def a_directory_for_lock(made: Made) -> None:
    (made.root / "LOCK").mkdir()


broken_block = encode_run(T0 + 9000, 0, 2, [b"n"], [b"1", b"2"])[:-1] + b"\0"

# fmt: off
FAILURES: list[tuple[str, Callable[[Made], None]]] = [
    ("tail", torn_tail),
    ("durable", unreadable_durable),
    ("time", time_goes_back),
    ("records", append((63, 0, b"k"))),
    ("records", append((e.XADD, 0, b"orders", 1))),
    ("records", append((e.XADD, 16, b"orders", T0 + 9000, 0, (b"f", b"v")))),
    ("records", append((e.XADD, 0, b"orders", T0 + 9000, 0, (b"f",)))),
    ("records", append_raw(packed((e.PERSIST, 3, b"session")))),              # the unit has no end
    ("records", append_raw(packed((e.PERSIST | END, 3, b"session")), 2)),     # one record instead of two
    ("records", append_raw(b"\xc1")),                                         # no msgpack
    ("records", append_raw(msgpack.packb("text"))),                           # no record
    ("blocks", append((e.XADD_MANY, 0, b"lines", T0 + 9000, 0, (), ((2, broken_block),), ()))),
    ("replay", append((e.XDEL, 0, b"missing", b"", ()))),
    ("frames", promised_frame),
    ("segments", missing_first),
    ("segments", missing_last),
    ("segments", cut_in_the_middle),
    ("headers", header),
    ("headers", foreign),
    ("identity", store_file),
    ("files", a_directory_for_lock),
]
# fmt: on


@pytest.mark.parametrize(("check", "damage"), FAILURES)
def test_each_check_fails_alone(
    run: Run, made: Made, check: str, damage: Callable[[Made], None]
) -> None:
    damage(made)
    done = run("aof", "verify", made.root, "--json")
    facts = json.loads(done.out)
    assert {failure["check"] for failure in facts["failures"]} == {check}, facts
    assert (done.code, done.err) == (aof_verify.CHECKS[check], "")
    text = run("aof", "verify", made.root).out
    assert f"\n{check}: " in text and "FAILED" in text


def test_every_check_can_fail() -> None:
    assert {check for check, _ in FAILURES} == set(aof_verify.CHECKS)


def test_the_codes_are_distinct_and_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/command-line.md").read_text()
    codes = {name: value for name, value in vars(exits).items() if isinstance(value, int)}
    assert len(set(codes.values())) == len(codes)
    for value in codes.values():
        assert f"\n| {value} |" in page, value


def test_several_failures_give_the_gravest(run: Run, made: Made) -> None:
    unreadable_durable(made)
    made.flip(300, number=0)
    done = run("aof", "verify", made.root, "--json")
    assert {f["check"] for f in json.loads(done.out)["failures"]} == {"durable", "frames"}
    assert done.code == exits.VERIFY_FRAMES


def test_without_replay(run: Run, made: Made) -> None:
    append((e.XDEL, 0, b"missing", b"", ()))(made)
    done = run("aof", "verify", made.root, "--no-replay")
    assert (done.code, "left out" in done.out, "digest" in done.out) == (0, True, False)


def test_the_table_of_fields_has_every_logged_opcode() -> None:
    logged = {
        value
        for name, value in vars(e).items()
        if name.isupper() and isinstance(value, int) and 0 < value < e.VOLATILE
    }
    assert set(KINDS) == logged


# Transactions have methods of their own.
UNSUPPORTED = {
    b"XPENDING",
    b"MULTI",
    b"EXEC",
    b"DISCARD",
    b"WATCH",
    b"UNWATCH",
    b"CONFIG",
    b"SELECT",
}


@pytest.mark.parametrize("seed", rest_slow(range(4), 1))
def test_whatever_a_store_writes_passes_every_check(run: Run, tmp_path: Path, seed: int) -> None:
    """Random commands, half of them of 8.x: their records are known, whole, and replay to the same digest."""
    root = tmp_path / "data"
    grammar = Grammar(random.Random(seed))
    dice = random.Random(seed)
    with tidelog.open(root, fsync="no") as db:
        for turn in grammar.sequence(1500):
            for args in turn.commands:
                if args[0].upper() in UNSUPPORTED or b"BLOCK" in map(bytes.upper, args):
                    continue
                with contextlib.suppress(tidelog.ResponseError):
                    db._run(args)  # no reply is looked at
                with contextlib.suppress(tidelog.ResponseError):
                    db._run(newer(grammar, dice))
        digest = db.digest()
    facts = json.loads(run("aof", "verify", root, "--json").out)
    assert facts["failures"] == []
    assert facts["digest"] == digest
    assert facts["records"] > 500


def newer(grammar: Grammar, dice: random.Random) -> list[bytes]:
    """A command that 7.0 does not know."""
    key, group, id = grammar.key(), grammar.group(), grammar.id()
    policy = dice.choice([b"KEEPREF", b"DELREF", b"ACKED"])
    return dice.choice(
        [
            [b"XADD", key, b"IDMP", b"p", b"%d" % dice.randint(0, 9), b"*", b"f", b"v"],
            [b"XADD", key, policy, b"MAXLEN", b"5", b"*", b"f", b"v"],
            [b"XTRIM", key, b"MAXLEN", b"~", b"3", policy],
            [b"XDELEX", key, policy, b"IDS", b"1", id],
            [b"XACKDEL", key, group, policy, b"IDS", b"1", id],
            [b"XNACK", key, group, dice.choice([b"FAIL", b"FATAL"]), b"IDS", b"1", id, b"FORCE"],
            [b"XCFGSET", key, b"IDMP-MAXSIZE", b"%d" % dice.randint(1, 3)],
            [b"XREADGROUP", b"GROUP", group, b"dora", b"CLAIM", b"0", b"STREAMS", key, b">"],
        ]
    )
