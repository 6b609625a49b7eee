"""Object stores that refuse, stall, or end a read early: one line that names the place and no credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.snapshot.buckets import SECRET, Faulty, credentials, faulty
from tests.tools.conftest import Run, run

import tidelog
from tidelog.snapshot import remote
from tidelog.tools import exits

__all__ = ["run"]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with tidelog.open(tmp_path_factory.mktemp("faulty") / "store", fsync="no") as db:
        db.xadd_many("orders", [{"n": at, "text": "x" * 100} for at in range(5000)])
        return db.snapshot().path


@pytest.fixture
def server(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    credentials(monkeypatch)
    monkeypatch.setattr(remote, "STALL_S", 0.5)
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    objects = {f"bucket/kept/{file.name}": file.read_bytes() for file in snapshot.iterdir()}
    with faulty(objects) as running:
        yield running


@pytest.mark.parametrize("fault", ("short", pytest.param("stall", marks=pytest.mark.slow), "deny"))
@pytest.mark.parametrize("beyond", (0, 100_000))
def test_a_snapshot_that_cannot_be_read(
    run: Run, server: Faulty, tmp_path: Path, fault: str, beyond: int
) -> None:
    server.fault, server.beyond = fault, beyond
    to = tmp_path / "to"
    # One task, so it runs in this process, with its limits.
    args = "--table", "keys", "--master", "none"
    if beyond:
        args = "--table", "entries", "--master", "none"
    done = run("export", server.url("bucket/kept"), "--to", to, *args)
    assert (done.code, done.out) == (exits.SYSTEM, ""), done.err
    assert done.err.startswith("tidelog: [TIDELOG_") and done.err.count("\n") == 1
    assert "s3://bucket/kept/" in done.err
    assert SECRET not in done.err
    assert not (to / "_manifest.json").exists()


def test_a_destination_that_cannot_be_written(
    run: Run, server: Faulty, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in (
        f"s3://AKIAUSER:{SECRET}@bucket/x?endpoint_override=127.0.0.1:1&scheme=http",
        server.url("bucket/to"),
    ):
        done = run("export", snapshot, "--to", url, "--master", "none")
        assert (done.code, done.out) == (exits.SYSTEM, ""), done.err
        assert (
            done.err.startswith("tidelog: [TIDELOG_IO] s3://bucket/") and done.err.count("\n") == 1
        )
        assert SECRET not in done.err and "AKIAUSER" not in done.err
        done = run("export", snapshot, "--to", "unused", "--since", url, "--master", "none")
        assert done.code == exits.SYSTEM and done.err.count("\n") == 1
        assert SECRET not in done.err and "AKIAUSER" not in done.err
