"""tidelog snapshot show, verify, restore and copy with URLs, as they are used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.snapshot.buckets import SECRET, Bucket
from tests.tools.conftest import Run
from tests.tools.made import Made

import tidelog
from tidelog.aof.identity import DATA
from tidelog.snapshot import remote
from tidelog.snapshot.copying import MARK
from tidelog.snapshot.manifest import NAME
from tidelog.tools import exits


@pytest.fixture
def kept(run: Run, made: Made) -> Path:
    """A snapshot in a store."""
    return Path(json.loads(run("snapshot", "create", made.root, "--json").out)["path"])


def test_the_whole_way(run: Run, kept: Path, bucket: Bucket, tmp_path: Path) -> None:
    url, name = bucket.url("orders/kept"), f"s3://{bucket.name}/orders/kept"
    done = run("snapshot", "copy", kept, url)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{name} made: everything through LSN {int(kept.name)}, ")
    done = run("snapshot", "copy", kept, url)
    assert f"{name} exists already" in done.out
    again = json.loads(run("snapshot", "copy", kept, url, "--json").out)
    assert again["existed"] and again["kept_bytes"] == again["bytes"] and again["from"] == str(kept)
    assert run("snapshot", "show", url).out == run("snapshot", "show", kept).out
    shown = json.loads(run("snapshot", "show", url, "--json").out)
    assert shown == json.loads(run("snapshot", "show", kept, "--json").out) | {"path": name}
    done = run("snapshot", "verify", url)
    assert (done.code, done.out) == (
        0,
        f"{name}: every byte, row and count is as it was published\n",
    )
    done = run("snapshot", "restore", url, tmp_path / "new")
    assert done.code == 0, done.err
    with tidelog.open(tmp_path / "new", read_only=True) as ours:
        with tidelog.open(kept, read_only=True) as theirs:
            assert ours.digest() == theirs.digest()
    assert run("snapshot", "copy", url, tmp_path / "back").code == 0
    assert (tmp_path / "back" / DATA).read_bytes() == (kept / DATA).read_bytes()


def test_damage(run: Run, kept: Path, bucket: Bucket) -> None:
    data = bytearray((kept / DATA).read_bytes())
    data[-1] ^= 1
    bucket.put(f"bad/{DATA}", bytes(data))
    bucket.put(f"bad/{NAME}", (kept / NAME).read_bytes())
    done = run("snapshot", "verify", bucket.url("bad"))
    assert done.code == exits.DAMAGED
    assert f"s3://{bucket.name}/bad/{DATA}: the data has the BLAKE2b hash" in done.out


def test_errors_take_one_line_and_a_code(
    run: Run, kept: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    dead = f"s3://AKIAUSER:{SECRET}@bucket/x?endpoint_override=127.0.0.1:1&scheme=http"
    target = tmp_path / "new"
    for args, code, text in (
        (("show", dead), exits.SYSTEM, f"s3://bucket/x/{NAME}: no access"),
        (("verify", dead), exits.SYSTEM, f"s3://bucket/x/{NAME}: no access"),
        (("restore", dead, target), exits.SYSTEM, f"s3://bucket/x/{NAME}: no access"),
        (("copy", dead, target), exits.SYSTEM, f"s3://bucket/x/{NAME}: no access"),
        (("copy", kept, dead), exits.SYSTEM, "s3://bucket/x: no access"),
        (("show", bucket.url("none")), exits.NOT_A_STORE, "the directory does not exist"),
        (("show", "s3://bucket/x?bogus=1"), exits.REFUSED, "the URL cannot be used"),
        (("show", "other://bucket/x"), exits.REFUSED, "the URL cannot be used"),
        (("copy", kept, tmp_path / "no" / "parent"), exits.NOT_A_STORE, "No such file"),
        (("copy", tmp_path / "none", target), exits.NOT_A_STORE, "the directory does not exist"),
    ):
        done = run("snapshot", *args)
        assert (done.code, done.out) == (code, ""), args
        assert text in done.err and done.err.count("\n") == 1
        assert SECRET not in done.err and "AKIAUSER" not in done.err
    assert not target.exists()


def test_a_copy_that_was_cut_short(run: Run, kept: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    (target / MARK).write_bytes(b"")
    done = run("snapshot", "show", target)
    assert done.code == exits.NOT_A_STORE and "it is an unfinished copy" in done.err
    assert run("snapshot", "copy", kept, target).code == 0
    assert run("snapshot", "verify", target).code == 0
