"""tidelog import of append-only files: single ones, with an image in front, and directories with a manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.rdb.test_layouts import value
from tests.tools.conftest import Run
from tests.tools.test_import import file_of, text

import tidelog
from tidelog.engine.commands.rewrite import Lost
from tidelog.engine.rdb.write import RdbTarget, dump
from tidelog.resp.commands import encoded
from tidelog.tools import exits
from tidelog.tools.importing import keys as importing_keys
from tidelog.tools.importing.from_aof import parse_manifest


def log(*lines: str) -> bytes:
    """Commands as RESP; a line that begins with `#` as it is."""
    return b"".join(
        line.encode() + b"\r\n" if line.startswith("#") else encoded(line.encode().split())
        for line in lines
    )


ORDERS = (
    "SELECT 0",
    "XADD s 1-0 f v",
    "XADD s 2-0 f w",
    "XGROUP CREATE s g 0",
    "XCLAIM s g ann 0 1-0 TIME 1700000000000 RETRYCOUNT 3 FORCE JUSTID LASTID 1-0",
    "SELECT 2",
    "SET x 1",
    "INCR x",
    "PEXPIREAT x 4000000000000",
)


def imported(run: Run, target: Path, source: Path, *options: str) -> dict[str, Any]:
    done = run("import", target, source, "--json", *options)
    assert done.code == 0, done.err
    facts: dict[str, Any] = json.loads(done.out)
    return facts


def keys(target: Path, db: int = 0) -> dict[bytes, Any]:
    with tidelog.open(target) as store:
        return dict(store._core.state.databases[db].keys.items())


def test_a_single_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.aof").write_bytes(log(*ORDERS))
    facts = imported(run, tmp_path / "t", tmp_path / "a.aof")
    assert facts["commands"] == 7
    assert [facts[name] for name in ("streams", "entries", "groups", "pending", "strings", "expires")] == [
        *(1, 2, 1, 1, 1, 1)
    ]  # fmt: skip
    with tidelog.open(tmp_path / "t") as db:
        assert db.xpending_range("s", "g", "-", "+", 9)[0]["times_delivered"] == 3
        group = db._core.state.databases[0].keys[b"s"].groups[b"g"]  # type: ignore[union-attr]
        assert group.consumers[b"ann"].seen_time == 1_700_000_000_000
    assert keys(tmp_path / "t", 2) == {b"x": b"2"}
    assert run("verify", tmp_path / "t").code == 0


def test_folded_after_every_command(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.aof").write_bytes(
        log(*ORDERS, "SELECT 0", *(f"XADD s {n}-0 f v" for n in range(3, 200)))
    )
    imported(run, tmp_path / "t", tmp_path / "a.aof")
    monkeypatch.setattr(importing_keys, "FOLD_BYTES", 1000)
    imported(run, tmp_path / "u", tmp_path / "a.aof")
    assert run("digest", tmp_path / "t").out == run("digest", tmp_path / "u").out
    assert run("verify", tmp_path / "u").code == 0


def test_an_image_in_front(run: Run, tmp_path: Path) -> None:
    image = file_of(tmp_path / "image", b"\xfe\x00\x13\x01s" + value(19))
    data = image.read_bytes() + log("SELECT 0", "XADD s 9-0 f v", "XACK s g 5-1")
    (tmp_path / "a.aof").write_bytes(data)
    facts = imported(run, tmp_path / "t", tmp_path / "a.aof")
    assert (facts["entries"], facts["pending"], facts["commands"]) == (3, 1, 2)


def test_lines_that_a_loader_skips_or_obeys(run: Run, tmp_path: Path) -> None:
    lines = (
        "#TS:1700000000",
        "SELECT 0",
        "#a comment",
        "XADD s MAXLEN = 2 LIMIT 0 1-0 f v",
        "XADD s IDMP p i 2-0 f v",
        "XADD s IDMPAUTO p 3-0 f v",
        "XADD s IDMP p i * f v",
        "XTRIM s MAXLEN = 2 LIMIT 100",
        "XGROUP CREATE s g 0",
        "XGROUP CREATECONSUMER s g ann",
        "SET old v PXAT 1000",
        "PERSIST old",
        "LPUSH list a",
        "LPUSH list b",
        "XADD s 1-0 f v",
        "PING",
    )
    (tmp_path / "a.aof").write_bytes(log(*lines))
    facts = imported(run, tmp_path / "t", tmp_path / "a.aof")
    assert facts["commands_not_imported"] == {"LPUSH": 2}
    assert facts["commands_refused"] == [
        {
            "error": "ERR The ID specified in XADD is equal or smaller than the target stream top item",
            "commands": 1,
            "first": "XADD s 1-0",
        }
    ]
    found = keys(tmp_path / "t")
    assert found[b"old"] == b"v"
    stream = found[b"s"]
    assert (stream.length, stream.last_id >> 64) == (2, 3)
    assert [(pid, entry_id >> 64) for pid, _, entry_id, _ in stream.idmp.records()] == [
        (b"p", 2),
        (b"p", 3),
    ]
    assert stream.groups[b"g"].consumers[b"ann"].seen_time == 1_700_000_000_000
    told = run("import", tmp_path / "u", tmp_path / "a.aof").out
    assert "not imported, because tidelog has no such commands: LPUSH (2)\n" in told
    assert "1 commands were refused with 'ERR The ID specified in XADD is equal" in told


def test_restore(run: Run, tmp_path: Path) -> None:
    payload = dump(b"x", b"value", RdbTarget.REDIS_7_0, Lost())
    words = [b"RESTORE", b"x", b"4000000000000", payload, b"ABSTTL"]
    again = [b"RESTORE", b"x", b"0", dump(b"x", b"new", RdbTarget.REDIS_7_0, Lost()), b"REPLACE"]
    data = (
        log("SELECT 0")
        + encoded(words)
        + encoded(again)
        + encoded([b"RESTORE", b"y", b"0", b"nonsense"])
    )
    (tmp_path / "a.aof").write_bytes(data)
    facts = imported(run, tmp_path / "t", tmp_path / "a.aof")
    assert facts["commands_refused"][0]["error"] == "ERR Bad data format"
    assert keys(tmp_path / "t") == {b"x": b"new"}


def test_cut_at_every_byte(run: Run, tmp_path: Path) -> None:
    """Redis takes such a file up to its last whole command; an open transaction goes whole."""
    first = log("SELECT 0", "SET a 1")
    whole = first + log("MULTI", "SET b 2", "SET c 3", "EXEC")
    path = tmp_path / "a.aof"
    for at in range(len(first), len(whole) + 1, 3):
        path.write_bytes(whole[:at])
        facts = imported(run, tmp_path / f"t{at}", path)
        assert facts["strings"] == 1
        if at == len(first):
            assert facts["notes"] == []
        else:
            assert f"it was taken up to byte {len(first)}, as Redis" in facts["notes"][0]
    path.write_bytes(whole)
    assert imported(run, tmp_path / "all", path)["strings"] == 3


# fmt: off
@pytest.mark.parametrize(("data", "said"), [
    (b"", "byte 0: the file is empty"),
    (b"hello", "byte 0: neither a dump file nor an append-only file begins with b'hello'"),
    (log("SET a 1") + b"junk\r\n", "byte 27: a command begins with *, not with b'junk"),
    (b"*1\r\n:4\r\n", "byte 4: $ and a number should stand here, not b':4'"),
    (b"*1\r\n$4\r\nPINGxx", "byte 4: an argument of 4 bytes does not end where it should"),
    (b"*0\r\n", "byte 0: a command has 0 arguments"),
    (b"*99999999\r\n", "byte 0: a command has 99999999 arguments"),
    (b"*" + b"1" * 500, "byte 0: the line that begins here has more than 64 bytes"),
])
# fmt: on
def test_bad_files(run: Run, tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.aof").write_bytes(data)
    done = run("import", tmp_path / "t", tmp_path / "a.aof")
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1)
    assert said in done.err


def test_a_huge_length_is_the_end_of_a_cut_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.aof").write_bytes(log("SET a 1") + b"*1\r\n$999999999999\r\nabc")
    assert "up to byte 27" in imported(run, tmp_path / "t", tmp_path / "a.aof")["notes"][0]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "redis" / "appendonlydir"
    folder.mkdir(parents=True)
    file_of(folder / "a.aof.2.base.rdb", text(b"x", b"1"))
    (folder / "a.aof.2.incr.aof").write_bytes(log("SELECT 3", "SET y 2"))
    (folder / "a.aof.3.incr.aof").write_bytes(log("SET x 9"))
    (folder / "a.aof.1.base.rdb").write_bytes(b"an old one")
    (folder / "a.aof.manifest").write_text(
        "# made by hand\n"
        "file a.aof.2.base.rdb seq 2 type b\n"
        "file a.aof.1.base.rdb seq 1 type h\n"
        "file a.aof.2.incr.aof seq 2 type i\n"
        'file "a.aof.3.incr.aof" seq 3 type i startoffset 0\n'
    )
    return folder


def test_directories(run: Run, tmp_path: Path, directory: Path) -> None:
    for number, source in enumerate((directory, directory.parent)):
        target = tmp_path / f"t{number}"
        assert imported(run, target, source)["strings"] == 2
        assert keys(target) == {b"x": b"9"}
        assert keys(target, 3) == {b"y": b"2"}


def test_a_manifest_that_was_not_put_in_place(run: Run, tmp_path: Path, directory: Path) -> None:
    (directory / "temp-a.aof.manifest").write_text("file a.aof.9.base.rdb seq 9 type b\n")
    assert imported(run, tmp_path / "t", directory)["strings"] == 2


def test_only_the_last_file_may_be_cut(run: Run, tmp_path: Path, directory: Path) -> None:
    for number in (3, 2):
        path = directory / f"a.aof.{number}.incr.aof"
        path.write_bytes(path.read_bytes()[:-3])
        done = run("import", tmp_path / f"t{number}", directory)
        assert done.code == (0 if number == 3 else exits.DAMAGED)
    assert "a.aof.2.incr.aof, byte" in done.err
    (directory / "a.aof.2.incr.aof").write_bytes(log("MULTI", "SET y 2"))
    done = run("import", tmp_path / "t", directory)
    assert "byte 0: a transaction has no EXEC, and further files follow" in done.err


def test_a_listed_file_that_is_missing(run: Run, tmp_path: Path, directory: Path) -> None:
    (directory / "a.aof.2.incr.aof").unlink()
    done = run("import", tmp_path / "t", directory)
    assert (done.code, "names a.aof.2.incr.aof, which is not there" in done.err) == (exits.DAMAGED, True)


def test_a_directory_without_a_manifest(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run("import", tmp_path / "t", tmp_path / "empty")
    assert (done.code, done.err.count("\n")) == (exits.NOT_A_STORE, 1)


# fmt: off
@pytest.mark.parametrize(("text", "said"), [
    ("", "line 1: a line has the pairs file, seq and type"),
    ("#\n", "names no file"),
    ("file a seq 1", "has the pairs"),
    ("file a seq 1 type i odd", "has the pairs"),
    ("file a seq x type i", "seq x and type i"),
    ("file a seq 1 type z", "seq 1 and type z"),
    ("file ../a seq 1 type i", "'../a' is a path"),
    ("file /etc/passwd seq 1 type b", "is a path"),
    ("file .. seq 1 type b", "is a path"),
    ("file a seq 1 type b\nfile b seq 2 type b", "two bases"),
    ("file a seq 2 type i\nfile b seq 2 type i", "line 2: the increment 2 comes after 2"),
    ('file "a seq 1 type i', "No closing quotation"),
    ("file " + "a" * 2000 + " seq 1 type i", "more than 1024 bytes"),
])
# fmt: on
def test_manifests_that_redis_refuses(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_manifest(text.encode())


def test_filters(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.aof").write_bytes(log(*ORDERS, "SELECT 77", "SET far 1", "DEL s far"))
    facts = imported(run, tmp_path / "t", tmp_path / "a.aof", "--db", "0")
    assert (facts["streams"], facts["strings"], facts["filtered_commands"]) == (1, 0, 5)
    facts = imported(run, tmp_path / "u", tmp_path / "a.aof", "--key", "x")
    assert (facts["streams"], facts["strings"]) == (0, 1)
    done = run("import", tmp_path / "v", tmp_path / "a.aof")
    assert (done.code, "is for database 77" in done.err) == (exits.REFUSED, True)


def test_dry_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.aof").write_bytes(log(*ORDERS))
    told = imported(run, tmp_path / "t", tmp_path / "a.aof", "--dry-run")
    assert told["commands"] == 7
    assert not (tmp_path / "t").exists()
    # It counts what the commands leave, as the import does.
    for fact in ("streams", "entries", "groups", "pending", "strings", "expires"):
        assert told[fact] == imported(run, tmp_path / fact, tmp_path / "a.aof")[fact]
    assert told["streams"] > 0


def test_entries_read_is_counted_as_the_server_that_delivered(run: Run, tmp_path: Path) -> None:
    """A Redis before 7.4 does not count an entry that was deleted before the group came to it; 8.8 does."""
    claim = "XCLAIM s g ann 0 {0} TIME 1700000000000 RETRYCOUNT 1 FORCE JUSTID LASTID {0}"
    lines = [
        *(f"XADD s {n}-0 f v" for n in (1, 2, 3)),
        "XGROUP CREATE s g 0 ENTRIESREAD 0",
        claim.format("1-0"),
        "XDEL s 2-0",
        claim.format("3-0"),
    ]
    (tmp_path / "a.aof").write_bytes(log("SELECT 0", *lines))
    imported(run, tmp_path / "t", tmp_path / "a.aof")
    group = keys(tmp_path / "t")[b"s"].groups[b"g"]
    assert (group.last_id >> 64, group.entries_read) == (3, 2)


@pytest.mark.parametrize("tail", [bytes(100), bytes(3), b"garbage\r\n", b"garbage"])
def test_a_damaged_tail_is_judged_as_redis_does(run: Run, tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "a.aof"
    path.write_bytes(log(*ORDERS) + tail)
    done = run("import", tmp_path / "t", path)
    assert done.code == exits.DAMAGED
    assert "redis-check-aof" in done.err and "--truncate-tail" in done.err
    done = run("import", tmp_path / "t", path, "--truncate-tail", "--json")
    assert (done.code, json.loads(done.out)["commands"]) == (0, 7)
    assert f"up to byte {len(log(*ORDERS))}" in json.loads(done.out)["notes"][0]
