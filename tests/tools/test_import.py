"""tidelog import: stores made of dump files."""

from __future__ import annotations

import json
import os
import random
import re
import threading
from importlib import import_module
from pathlib import Path

import click
import pytest
from tests.engine.rdb.loaded import read, written
from tests.engine.rdb.test_layouts import value
from tests.fuzz.kinds import bounded
from tests.oracle.played import played
from tests.small_disk import small_disk
from tests.tools.conftest import Run

import tidelog
from tidelog.aof.identity import RESTORING
from tidelog.engine.effects.digest import digest
from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.write import RdbTarget, length
from tidelog.snapshot.filling import Filling
from tidelog.tools import cli, exits
from tidelog.tools.commands import RDB
from tidelog.tools.importing import keys as importing_keys
from tidelog.tools.importing import pieces
from tidelog.tools.importing.pieces import Pieces

T0 = 1_700_000_000_000


def file_of(path: Path, *parts: bytes, version: bytes = b"0011") -> Path:
    body = b"REDIS" + version + b"".join(parts) + b"\xff"
    path.write_bytes(body + crc64(body).to_bytes(8, "little"))
    return path


def text(name: bytes, of: bytes) -> bytes:
    return bytes((0, len(name))) + name + bytes((len(of),)) + of


def a_list(name: bytes, *items: bytes) -> bytes:
    parts = b"".join(bytes((len(item),)) + item for item in items)
    return bytes((1, len(name))) + name + bytes((len(items),)) + parts


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return file_of(
        tmp_path / "dump.rdb",
        b"\xfe\x00" + b"\x15\x01s" + value(21),
        text(b"x", b"1"),
        b"\xfc" + (T0 * 2).to_bytes(8, "little") + text(b"y", b"2"),
        a_list(b"jobs", b"a", b"bc"),
        a_list(b"more jobs", b"a" * 30),
        b"\xf5\x04code",
        b"\xfe\x03" + text(b"x", b"3") + b"\x02\x03set\x01\x01a",
    )


def test_digest_is_that_of_the_source(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folded after every few nodes, so also in the middle of streams and between groups."""
    for seed in range(6):
        monkeypatch.setattr(importing_keys, "FOLD_BYTES", (1, 900, 4000)[seed % 3])
        source, _ = played(random.Random(seed), 80)
        data, _ = written(source.state, RdbTarget.REDIS_8_8)
        dump, target = tmp_path / f"{seed}.rdb", tmp_path / str(seed)
        dump.write_bytes(data)
        assert run("import", target, dump).code == 0
        assert digest(read(Source.of(data))) == run("digest", target).out.strip(), seed
        again = tmp_path / f"{seed}.again"
        assert run("rdb", "export", target, again).code == 0
        assert again.read_bytes() == data, seed


def test_a_stream_that_is_folded_many_times(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tidelog.open(tmp_path / "source") as db:
        for base in range(0, 5000, 500):
            db.xadd_many("s", [{"n": base + n, "text": "x" * 20} for n in range(500)])
        db.xgroup_create("s", "g", "0")
        db.xreadgroup("g", "ann", {"s": ">"}, count=3000)
        ids = [entry_id for entry_id, _ in db.xrange("s", count=4000)]
        db.xdel("s", *ids[10:3500:7])
        db.xack("s", "g", *ids[:1000:3])
        wanted = db.digest()
    dump = tmp_path / "s.rdb"
    assert run("rdb", "export", tmp_path / "source", dump).code == 0
    monkeypatch.setattr(importing_keys, "FOLD_BYTES", 30_000)
    folds: list[int] = []
    fold = Filling.fold

    def counted(self: Filling) -> None:
        folds.append(1)
        fold(self)

    monkeypatch.setattr(Filling, "fold", counted)
    target = tmp_path / "target"
    assert run("import", target, dump).code == 0
    assert len(folds) > 5
    with tidelog.open(target) as db:
        assert db.digest() == wanted
        assert db.xautoclaim("s", "g", "ben", 0, "0", count=5000)[1]
        db.xadd("s", {"n": "new"})
        found = db.digest()
    with tidelog.open(target) as db:
        assert db.digest() == found
    assert run("verify", target).code == 0


def test_report(run: Run, mixed: Path, tmp_path: Path) -> None:
    target = tmp_path / "orders-data"
    done = run("import", target, mixed)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"{target} contains 1 streams with 2 entries, 1 groups and 2 pending entries, 3 strings; 1 keys expire\n"
        "not imported: functions (1)\n"
        "not imported, because tidelog has no such type:\n"
        "TYPE  KEYS  BYTES  LARGEST\n"
        'list     2   38 B  "more jobs" 32 B, jobs 6 B\n'
        "set      1    3 B  [3] set 3 B\n"
    )
    with tidelog.open(target) as db:
        assert db.get("x") == b"1"
        assert db.pexpiretime("y") == 2 * T0


def test_dry_run_reads_all_and_makes_nothing(run: Run, mixed: Path, tmp_path: Path) -> None:
    target = tmp_path / "orders-data"
    facts = json.loads(run("import", target, mixed, "--dry-run", "--json").out)
    assert facts == {
        "path": str(target),
        "source": str(mixed),
        "dry_run": True,
        "streams": 1,
        "entries": 2,
        "groups": 1,
        "pending": 2,
        "strings": 3,
        "expires": 1,
        "filtered": 0,
        "commands": 0,
        "filtered_commands": 0,
        "commands_not_imported": {},
        "commands_refused": [],
        "notes": [],
        "entries_read_above_added": 0,
        "not_imported": [
            {
                "type": "list",
                "keys": 2,
                "bytes": 38,
                "largest": [
                    {"db": 0, "key": "more jobs", "bytes": 32},
                    {"db": 0, "key": "jobs", "bytes": 6},
                ],
            },
            {
                "type": "set",
                "keys": 1,
                "bytes": 3,
                "largest": [{"db": 3, "key": "set", "bytes": 3}],
            },
        ],
        "beside": {"functions": 1},
    }
    assert not target.exists()
    real = json.loads(run("import", target, mixed, "--json").out)
    assert real.pop("uuid") and real.pop("lsn") == 1
    assert real == facts | {"dry_run": False}


# fmt: off
@pytest.mark.parametrize(("options", "keys", "skipped"), [
    (["--db", "3"], {(3, b"x")}, 5),
    (["--db", "0", "--db", "3", "--key", "[xy]"], {(0, b"x"), (0, b"y"), (3, b"x")}, 4),
    (["--key", "s*"], {(0, b"s")}, 5),
])
# fmt: on
def test_filters(
    run: Run, mixed: Path, tmp_path: Path, options: list[str], keys: set[tuple[int, bytes]], skipped: int
) -> None:
    target = tmp_path / "orders-data"
    facts = json.loads(run("import", target, mixed, *options, "--json").out)
    assert facts["filtered"] == skipped
    with tidelog.open(target) as db:
        found = {(number, key) for number in (0, 3) for key in names(db, number)}
    assert found == keys


def names(db: tidelog.Store, number: int) -> list[bytes]:
    return [key for key, *_ in db._core.state.databases[number].keys.walk()]


def test_groups_that_redis_refuses_are_taken_and_told(run: Run, tmp_path: Path) -> None:
    empty = b"\x00\x00\x09\x00" + b"\x00\x00" * 2 + b"\x00" + b"\x01" + b"\x01g\x09\x00\x05\x00\x00"
    dump = file_of(tmp_path / "dump.rdb", b"\x13\x01s" + empty)
    done = run("import", tmp_path / "t", dump)
    assert "1 groups have read more entries than were ever added" in done.out
    with tidelog.open(tmp_path / "t") as db:
        assert db.xinfo_groups("s")[0]["entries-read"] == 5


# fmt: off
@pytest.mark.parametrize(("part", "version", "code", "said"), [
    (b"\x00\x01x\x09a", b"0011", exits.DAMAGED, "byte 23: 1 bytes should follow"),
    (text(b"x", b"1") * 2, b"0011", exits.DAMAGED, "byte 17: the key x comes twice in database 0"),
    (b"\x1e\x01x", b"0011", exits.NEWER, "byte 12: the value has the type 30"),
    (b"", b"0099", exits.NEWER, "byte 5: the format has version 99"),
    (b"\xfe\x14" + text(b"x", b"1"), b"0011", exits.REFUSED, "the key x is in database 20"),
])
# fmt: on
def test_bad_files(
    run: Run, tmp_path: Path, part: bytes, version: bytes, code: int, said: str
) -> None:
    dump = file_of(tmp_path / "dump.rdb", part, version=version)
    target = tmp_path / "t"
    done = run("import", target, dump)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert said in done.err
    assert os.listdir(target) == ["LOCK"]
    assert run("import", target, file_of(dump, text(b"x", b"1"))).code == 0
    assert run("digest", target).code == 0


@pytest.mark.parametrize("data", [b"", b"REDIS", b"hello, world", bytes(5000), b"SQLite format 3"])
def test_other_files(run: Run, tmp_path: Path, data: bytes) -> None:
    dump = tmp_path / "dump.rdb"
    dump.write_bytes(data)
    done = run("import", tmp_path / "t", dump)
    assert (done.code, done.out, done.err.count("\n")) == (exits.DAMAGED, "", 1)
    assert str(dump) in done.err


@pytest.mark.parametrize("elements", [1 << 21, 1 << 22])
def test_a_node_that_unpacks_to_millions_of_elements(
    run: Run, tmp_path: Path, elements: int
) -> None:
    """Each three bytes of LZF stand for 132 elements."""
    runs = elements // 132
    size = 8 + 264 * runs + 1
    head = size.to_bytes(4, "little") + b"\xff\xff"
    packed = b"\x07" + head + b"\x01\x01" + b"\xe0\xff\x01" * runs + b"\x00\xff"
    node = b"\x10" + bytes(16) + b"\xc3" + length(len(packed)) + length(size) + packed
    dump = file_of(tmp_path / "dump.rdb", b"\x15\x01s\x01" + node)
    with bounded(size + (256 << 20)):
        done = run("import", tmp_path / "t", dump)
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1), done.err
    assert "has more than 1048576 elements" in done.err
    assert os.listdir(tmp_path / "t") == ["LOCK"]


def test_an_export_to_a_full_disk(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store") as store:
        for number in range(1000):
            store.set(f"k{number}", os.urandom(4096))
    with small_disk(tmp_path / "small") as at:
        done = run("rdb", "export", tmp_path / "store", at / "dump.rdb")
        assert (done.code, done.out, done.err.count("\n")) == (exits.SYSTEM, "", 1), done.err
        assert "dump.rdb" in done.err
        assert os.listdir(at) == []


def test_data_behind_the_end(run: Run, tmp_path: Path) -> None:
    dump = file_of(tmp_path / "dump.rdb")
    dump.write_bytes(dump.read_bytes() + b"more")
    done = run("import", tmp_path / "t", dump)
    assert done.code == exits.DAMAGED
    assert "byte 18: " in done.err


def test_places(run: Run, mixed: Path, tmp_path: Path) -> None:
    assert run("import", tmp_path / "t", tmp_path / "missing").code == exits.NOT_A_STORE
    tidelog.open(tmp_path / "store").close()
    done = run("import", tmp_path / "store", mixed)
    assert (done.code, "contains a store already" in done.err) == (exits.REFUSED, True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("")
    assert run("import", tmp_path / "full", mixed).code == exits.REFUSED
    assert run("import", mixed, mixed).code == exits.REFUSED


def test_a_look_at_the_first_bytes_gives_no_more(tmp_path: Path) -> None:
    """Of a FIFO that somebody writes at once, the first look gets more than it asks for."""
    (tmp_path / "rest").write_bytes(b"345")
    with (tmp_path / "rest").open("rb", buffering=0) as file:
        pieces = Pieces(file, None, lambda count: None, b"012")
        assert (pieces.peek(2), pieces.peek(5)) == (b"01", b"01234")
        assert pieces.pull() + pieces.pull() == b"012345"


def test_a_pipe(run: Run, mixed: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(mixed.read_bytes()))
    writer.start()
    done = run("import", tmp_path / "t", pipe)
    writer.join()
    assert done.code == 0
    assert run("import", tmp_path / "u", mixed).code == 0
    assert run("digest", tmp_path / "t").out == run("digest", tmp_path / "u").out


def test_a_fifo_that_nobody_writes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "WRITER_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    done = run("import", tmp_path / "t", tmp_path / "pipe")
    assert (done.code, done.err) == (
        exits.SYSTEM,
        f"tidelog: {tmp_path / 'pipe'}: nobody opened this FIFO for writing in 0.1 s\n",
    )
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["LOCK"]


def test_cut_short_it_is_no_store_and_starts_over(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "t"
    fold = Filling.fold
    monkeypatch.setattr(importing_keys, "FOLD_BYTES", 1)

    def cut(self: Filling) -> None:
        fold(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Filling, "fold", cut)
    assert run("import", target, mixed).code == exits.INTERRUPTED
    assert RESTORING in os.listdir(target)
    done = run("info", target)
    assert (done.code, "unfinished restore or import" in done.err) == (exits.NOT_A_STORE, True)
    monkeypatch.setattr(Filling, "fold", fold)
    assert run("import", target, mixed).code == 0
    assert run("verify", target).code == 0


def test_a_full_disk(run: Run, tmp_path: Path) -> None:
    strings = b"".join(
        b"\x00\x04%04d\x80\x00\x00\x10\x00" % n + os.urandom(4096) for n in range(1500)
    )
    dump = file_of(tmp_path / "dump.rdb", strings)
    with small_disk(tmp_path / "small") as at:
        done = run("import", at / "t", dump)
        assert (done.code, done.out, done.err.count("\n")) == (exits.SYSTEM, "", 1), done.err
        assert os.listdir(at / "t") == ["LOCK"]
        assert run("import", at / "t", file_of(dump, text(b"x", b"1"))).code == 0


@pytest.mark.parametrize("name", RDB)
def test_every_example_is_one_that_the_command_takes(run: Run, name: str) -> None:
    examples(run, ["rdb", name], RDB[name][0])


def test_the_examples_of_import(run: Run) -> None:
    examples(run, ["import"], "tidelog.tools.importing.command")


def examples(run: Run, words: list[str], module: str) -> None:
    lines = run(*words, "--help").out.partition("Examples:\n")[2].strip().splitlines()
    assert lines
    for line in lines:
        given = [word.strip("'") for word in line.split()]
        assert given[: 1 + len(words)] == ["tidelog", *words]
        with import_module(module).command.make_context("x", given[1 + len(words) :]) as context:
            assert context.params


def test_the_commands_of_the_guide_are_commands() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/moving-from-redis.md").read_text()
    fences = "\n".join(re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S))
    lines = fences.splitlines() + re.findall(r"`(tidelog (?:import|rdb) [^`]+ [^`]+)`", page)
    commands = [line.split(" | ")[0].split()[1:] for line in lines if line.startswith("tidelog ")]
    assert len(commands) > 7
    for words in commands:
        group: click.Command = cli.cli
        at = 0
        while isinstance(group, click.Group):
            found = group.get_command(click.Context(group), words[at])
            assert found is not None, words
            group, at = found, at + 1
        with group.make_context("x", words[at:]) as context:
            assert context.params


def test_the_losses_in_the_guide_are_those_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/moving-from-redis.md").read_text()
    for target in RdbTarget:
        assert f"| {target.value} | {target.version} | {target.kind} |" in page
