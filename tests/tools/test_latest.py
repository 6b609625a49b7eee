"""The name `latest` in a folder of snapshots: every command takes it for the newest one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog.tools import exits
from tidelog.tools.latest import named


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two snapshots, of one entry and of two."""
    root = tmp_path_factory.mktemp("store")
    with tidelog.open(root / "data") as db:
        for item in ("tea", "rice"):
            db.xadd("orders", {"item": item})
            db.snapshot()
        db.xadd("orders", {"item": "later"})
    return root / "data"


def newest(store: Path) -> Path:
    return max(each for each in (store / "snapshots").iterdir() if each.name.isdigit())


COMMANDS = (
    "info --json",
    "digest",
    "verify",
    "state",
    "cat KEY",
    "snapshot show",
    "snapshot verify",
    "aof export --resp",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_the_newest_snapshot(run: Run, store: Path, command: str) -> None:
    words, _, key = command.partition(" KEY")
    latest, named = (
        run(*words.split(), path, *(["orders"] if " KEY" in command else []))
        for path in (store / "snapshots" / "latest", newest(store))
    )
    assert latest.code == 0
    shown = latest.out.replace(str(store / "snapshots" / "latest"), str(newest(store)))
    assert shown == named.out


def test_restore_and_copy(run: Run, store: Path, tmp_path: Path) -> None:
    latest = store / "snapshots" / "latest"
    for command in ("restore", "copy"):
        assert run("snapshot", command, latest, tmp_path / command).code == 0
        assert len(run("cat", tmp_path / command, "orders").out.splitlines()) == 2
    again = run("snapshot", "show", f"file://{latest}", "--json")
    assert json.loads(again.out)["path"] == str(newest(store))


def test_in_a_folder_of_copies(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    assert (
        run("snapshot", "copy", newest(store), tmp_path / "backup" / newest(store).name).code == 0
    )
    assert "rice" in run("cat", tmp_path / "backup" / "latest", "orders").out


def test_a_store_that_is_called_so(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "latest") as db:
        db.set("name", "mine")
    assert run("cat", tmp_path / "latest", "name").out == "mine\n"


def test_no_snapshots(run: Run, tmp_path: Path) -> None:
    tidelog.open(tmp_path / "data").close()
    for words in (["info"], ["snapshot", "show"]):
        done = run(*words, tmp_path / "data" / "snapshots" / "latest")
        assert (done.code, done.err.count("\n")) == (exits.NOT_A_STORE, 1)
        assert "holds no snapshots" in done.err
    missing = run("info", tmp_path / "elsewhere" / "latest")
    assert missing.code == exits.NOT_A_STORE and "the directory does not exist" in missing.err


def test_the_newest_one_is_damaged(run: Run, store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(store, tmp_path / "damaged")
    (newest(store) / "manifest.json").write_text("{")
    done = run("info", store / "snapshots" / "latest")
    assert done.code == exits.DAMAGED and newest(store).name in done.err


def test_a_url_of_a_bucket_stays() -> None:
    assert named("s3://bucket/snapshots/latest") == "s3://bucket/snapshots/latest"
    assert named("orders-data") == "orders-data"
