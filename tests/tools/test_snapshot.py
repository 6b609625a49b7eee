"""tidelog snapshot: create, ls, show, verify, prune, restore, as they are used."""

import json
import random
import re
from importlib import import_module
from pathlib import Path

import pytest
from tests.snapshot.portable.portable_store import opened, work
from tests.tools.conftest import Run
from tests.tools.made import T0, Made

import tidelog
from tidelog.aof.identity import DATA
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot import portable
from tidelog.snapshot.place import place_of
from tidelog.tools import exits
from tidelog.tools.commands import SNAPSHOT
from tidelog.tools.snapshot import restore as snapshot_restore


def only(root: Path) -> Path:
    """The one snapshot of a store."""
    (found,) = (path for path in (root / "snapshots").iterdir() if path.name.isdigit())
    return found


def test_help(run: Run) -> None:
    out = run("snapshot", "--help").out
    for name, (_, line) in SNAPSHOT.items():
        assert f"  {name}" in out
        assert line in " ".join(run("snapshot", name, "--help").out.split())


@pytest.mark.parametrize("name", SNAPSHOT)
def test_every_example_is_one_that_the_command_takes(run: Run, name: str) -> None:
    command = import_module(SNAPSHOT[name][0]).command
    lines = run("snapshot", name, "--help").out.partition("Examples:\n")[2].strip().splitlines()
    assert lines
    for example in lines:
        words = example.replace(";", " |").split(" | ")[0].split()
        assert words[:3] == ["tidelog", "snapshot", name]
        with command.make_context(name, words[3:]) as context:
            assert context.params


def test_a_server_makes_the_snapshot(run: Run, tmp_path: Path) -> None:
    """By its URL, and for a path that it serves."""
    root = tmp_path / "db"
    with tidelog.open(root) as db, tidelog.serve(db, port=0) as serving:
        db.set("k", "v")
        url = f"redis://127.0.0.1:{serving.port}"
        done = run("snapshot", "create", url)
        path = only(root)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(
            f"{path} made: everything through LSN {int(path.name)}, 0 entries"
        )
        told = json.loads(run("snapshot", "create", "--json", "--url", url).out)
        assert (told["path"], told["existed"]) == (str(path), True)
        db.set("k", "w")
        assert json.loads(run("snapshot", "create", root, "--json").out)["lsn"] > told["lsn"]


def test_the_whole_way(run: Run, made: Made, tmp_path: Path) -> None:
    done = run("snapshot", "create", made.root)
    path = only(made.root)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(
        f"{re.escape(str(path))} made: everything through LSN {int(path.name)}, 4 entries in 3 streams, .* KiB\n",
        done.out,
    )
    assert "exists already" in run("snapshot", "create", made.root).out

    done = run("snapshot", "ls", made.root)
    assert done.code == 0
    head, row = done.out.splitlines()
    assert head.split() == [
        "SNAPSHOT",
        "LAST",
        "WRITE",
        "CREATED",
        "KEYS",
        "STREAMS",
        "ENTRIES",
        "PENDING",
        "BYTES",
    ]
    assert row.startswith(f"{path.name}  2023-11-14T22:13:24.000Z")

    out = run("snapshot", "show", path).out
    assert f"holds        everything through LSN {int(path.name)}\n" in out
    assert "store        000102030405060708090a0b0c0d0e0f, 2 lives\n" in out
    assert "database 3   2 keys, 1 of them expire\n" in out
    assert re.search(r"^0 +orders +2 +1 +1$", out, re.M)
    assert "and 2 more\n" in run("snapshot", "show", path, "--count", "1").out

    done = run("snapshot", "verify", path)
    assert done == (0, f"{path}: every byte, row and count is as it was published\n", "")

    done = run("snapshot", "restore", path, tmp_path / "new")
    assert done.code == 0
    assert done.out.startswith(f"{tmp_path / 'new'} contains everything through LSN ")
    assert run("verify", tmp_path / "new", "--snapshots").code == 0
    with opened(made.root) as db, opened(tmp_path / "new") as new:
        assert new.digest() == db.digest()


def test_json(run: Run, made: Made, tmp_path: Path) -> None:
    created = json.loads(run("snapshot", "create", made.root, "--json").out)
    path = only(made.root)
    (listed,) = map(json.loads, run("snapshot", "ls", made.root, "--json").out.splitlines())
    shown = json.loads(run("snapshot", "show", path, "--json").out)
    assert created.pop("existed") is False
    assert created == listed
    largest = shown.pop("largest")
    assert shown == listed
    assert listed["entries"] == sum(row["entries"] for row in largest) == 4
    assert listed["last_write_ms"] == T0 + 4000
    assert json.loads(run("snapshot", "verify", path, "--json").out)["findings"] == []
    restored = json.loads(run("snapshot", "restore", path, tmp_path / "new", "--json").out)
    assert restored["lsn"] == listed["lsn"] and restored["uuid"] == listed["uuid"]
    pruned = json.loads(run("snapshot", "prune", made.root, "--keep", "0", "--json").out)
    assert pruned["deleted"] == [str(path)]
    assert run("snapshot", "ls", made.root, "--json").out == ""


def test_prune(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    with opened(root) as db:
        for _ in range(4):
            work(db, random.Random(1), 5)
            assert run("snapshot", "create", root).code == 0
    names = sorted(path.name for path in (root / "snapshots").iterdir() if path.name.isdigit())
    done = run("snapshot", "prune", root, "--keep", "3", "--dry-run")
    assert done.out.splitlines()[0] == str(root / "snapshots" / names[0])
    assert "1 snapshots with" in done.out and "nothing was changed, 3 kept" in done.out
    assert run("snapshot", "prune", root, "--keep", "1").code == 0
    assert [line.split()[0] for line in run("snapshot", "ls", root).out.splitlines()[1:]] == names[
        3:
    ]
    assert run("snapshot", "prune", root).code == exits.USAGE


def test_prune_passes_over_a_snapshot_that_is_read(run: Run, made: Made) -> None:
    assert run("snapshot", "create", made.root).code == 0
    path = only(made.root)
    with place_of(path).hold():
        for option, word in (("--dry-run", "would not be"), ("--json", "not")):
            done = run("snapshot", "prune", made.root, "--keep", "0", option)
            assert done.code == 0
            if option == "--json":
                facts = json.loads(done.out)
                assert facts["held"] == [str(path)] and facts["deleted"] == []
            else:
                assert f"tidelog: {word} deleted: {path} is held by a reader" in done.err
        done = run("snapshot", "prune", made.root, "--keep", "0")
        assert f"tidelog: not deleted: {path} is held by a reader" in done.err
        assert path.exists()
    assert run("snapshot", "prune", made.root, "--keep", "0").err == ""
    assert not path.exists()


def test_until(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    with opened(root) as db:
        work(db, random.Random(1), 50)
        made = db.snapshot()
        with db.pipeline(transaction=True) as unit:
            unit.xadd("a", {"n": 1}).xadd("a", {"n": 2}).xadd("a", {"n": 3})
            unit.execute()
    done = run("snapshot", "restore", made.path, tmp_path / "new", "--until-lsn", made.lsn + 2)
    assert done.code == 0
    assert "is in the middle of a unit, so that whole unit was left out" in done.out
    done = run("snapshot", "restore", made.path, tmp_path / "all", "--until-time", "2999-01-01")
    assert "records were applied from the log after the snapshot\n" in done.out
    with opened(tmp_path / "all") as db:
        assert db.xlen("a") == 3


# fmt: off
@pytest.mark.parametrize(("text", "ms"), [
    ("1700000000", 1_700_000_000_000),
    ("1700000000000", 1_700_000_000_000),
    ("1700000000.5", 1_700_000_000_500),
    ("1700000000.1239", 1_700_000_000_123),
    ("2023-11-14T22:13:20Z", 1_700_000_000_000),
    ("2023-11-14T22:13:20", 1_700_000_000_000),
    ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
    ("1900-01-01", 0),
])
# fmt: on
def test_times(text: str, ms: int) -> None:
    assert snapshot_restore.moment(None, None, text) == ms  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "soon", ".", "12h30", "2023-99-01", "²", "9" * 400])
def test_no_times(run: Run, made: Made, tmp_path: Path, text: str) -> None:
    run("snapshot", "create", made.root)
    done = run("snapshot", "restore", only(made.root), tmp_path / "new", "--until-time", text)
    assert done.code in (exits.USAGE, 0) and "Traceback" not in done.err
    if text != "9" * 400:
        assert done.code == exits.USAGE and "is not a time" in done.err


# fmt: off
@pytest.mark.parametrize("args", [
    ["create", "ROOT"], ["ls", "ROOT"], ["prune", "ROOT", "--keep", "1"],
    ["show", "ROOT"], ["verify", "ROOT"], ["restore", "ROOT", "TARGET"],
])
# fmt: on
def test_nothing_there(run: Run, tmp_path: Path, args: list[str]) -> None:
    words = [{"ROOT": str(tmp_path / "no"), "TARGET": str(tmp_path / "new")}.get(a, a) for a in args]
    done = run("snapshot", *words)
    assert (done.code, done.out, done.err.count("\n")) == (exits.NOT_A_STORE, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_no_snapshot(run: Run, made: Made) -> None:
    for name in ("show", "verify"):
        done = run("snapshot", name, made.root)
        assert done.code == exits.NOT_A_STORE
    run("snapshot", "create", made.root)
    assert "its folder snapshots/" in run("snapshot", "show", made.root).err


def test_damage(run: Run, made: Made, tmp_path: Path) -> None:
    run("snapshot", "create", made.root)
    path = only(made.root)
    data = bytearray((path / DATA).read_bytes())
    data[-30] ^= 1
    (path / DATA).write_bytes(data)
    done = run("snapshot", "verify", path)
    assert done.code == exits.DAMAGED and "BLAKE2b" in done.out
    done = run("snapshot", "restore", path, tmp_path / "new")
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1)
    done = run("verify", made.root, "--snapshots")
    assert done.code == 30 and "snapshot: " in done.out
    (path / manifests.NAME).write_text("{}")
    done = run("snapshot", "ls", made.root)
    assert done.code == exits.DAMAGED and "cannot be read" in done.out
    done = run("snapshot", "prune", made.root, "--keep", "0")
    assert done.code == 0 and "not deleted" in done.err
    assert path.exists()


def test_a_newer_one(run: Run, made: Made) -> None:
    run("snapshot", "create", made.root)
    path = only(made.root) / manifests.NAME
    path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 2'))
    done = run("snapshot", "show", path.parent)
    assert done.code == exits.NEWER and "format version 2" in done.err


def test_refusals(run: Run, made: Made, tmp_path: Path) -> None:
    run("snapshot", "create", made.root)
    path = only(made.root)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    done = run("snapshot", "restore", path, tmp_path / "full")
    assert done.code == exits.REFUSED and "it contains notes.txt" in done.err
    done = run("snapshot", "restore", path, tmp_path / "new", "--until-lsn", "3")
    assert done.code == exits.REFUSED and "choose an older snapshot" in done.err
    assert not (tmp_path / "new").exists()


def test_who_waits_in_vain_is_told(
    run: Run, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(portable, "WAIT_S", 0.05)
    run("snapshot", "create", made.root)
    with (made.root / "snapshots" / "LOCK").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("snapshot", "prune", made.root, "--keep", "0")
    assert done.code == exits.LOCKED and "try again" in done.err
