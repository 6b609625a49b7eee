"""One durability everywhere: what a client gets without asking, and what it is refused if it asks for more."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.client.owners import ended_owner, kill, served

import tidelog
from tidelog.client import link
from tidelog.server.config.config import Config
from tidelog.server.config.stored import Stored
from tidelog.server.serving import choose_policy
from tidelog.store.opening import was_served


def connected(where: Any, fsync: str | None) -> str:
    with tidelog.connect(where, fsync=fsync) as db:
        return str(db.fsync)


def queue(where: Any, fsync: str | None) -> str:
    with tidelog.queue(where, "mails", shared=True, fsync=fsync) as mails:
        mails.put("x")
        return str(mails.store.fsync)


def aconnected(where: Any, fsync: str | None) -> str:
    async def run() -> str:
        async with tidelog.aconnect(where, fsync=fsync, decode_responses=True) as db:
            return str((await db.config_get("appendfsync"))["appendfsync"])

    return asyncio.run(run())


def aqueue(where: Any, fsync: str | None) -> str:
    async def run() -> str:
        async with tidelog.aqueue(where, "mails", shared=True, fsync=fsync) as mails:
            await mails.put("x")
        return connected(where, None)

    return asyncio.run(run())


FACES = pytest.mark.parametrize("face", [connected, queue, aconnected, aqueue])
Face = Callable[[Any, str | None], str]


@FACES
def test_a_client_takes_what_the_store_has(bench: Bench, face: Face) -> None:
    assert [face(bench.root, given) for given in (None, "everysec", "no")] == ["everysec"] * 3


@FACES
def test_more_than_the_server_has_is_refused(bench: Bench, face: Face) -> None:
    with pytest.raises(tidelog.DataError) as caught:
        face(bench.root, "always")
    text = str(caught.value)
    assert text.startswith(
        f"the store at {bench.root} is served with the fsync policy everysec, and fsync='always' asks for more"
    )
    assert f"tidelog config {bench.root} set appendfsync=always" in text and "at('fsynced')" in text
    bench.db.fsync = "always"
    with tidelog.connect(bench.root) as db:
        db.config_set("appendfsync", "always")
    assert face(bench.root, "always") == "always"


def test_a_url_too(bench: Bench) -> None:
    with pytest.raises(tidelog.DataError, match=r"tidelog config PATH set appendfsync=always"):
        connected(f"redis://127.0.0.1:{bench.serving.port}", "always")


def test_a_server_of_an_earlier_version(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not tell its policy among its capabilities."""
    monkeypatch.setattr(link, "FSYNC", b"nothing:")
    with pytest.raises(tidelog.DataError, match="served with the fsync policy everysec"):
        connected(bench.root, "always")
    assert connected(bench.root, "everysec") == "everysec"


def test_a_server_that_comes_later_may_not_have_less(bench: Bench) -> None:
    db = bench.connect(fsync="everysec")
    db.set("a", "1")
    bench.serving.close()
    bench.db.close()
    with tidelog.open(bench.root, fsync="no") as low, tidelog.serve(low, port=0):
        with pytest.raises(tidelog.DataError, match="served with the fsync policy no"):
            db.set("a", "2")
        assert low.get("a") == b"1"


def test_a_single_call_may_ask_for_more(bench: Bench) -> None:
    db = bench.connect().at("fsynced")
    db.set("a", "1")
    db.queue("mails").put("x")


def test_an_embedded_queue_has_always_and_an_owner_too(tmp_path: Path, root: Path) -> None:
    with tidelog.queue(tmp_path / "own", "mails", fsync=None) as mails:
        mails.put("x")
    with tidelog.connect(root) as db:
        assert db.fsync == "always" and was_served(root)
        kill(root)
    with tidelog.connect(root, fsync="everysec") as db:
        assert db.fsync == "everysec"
        kill(root)
    Stored(root).update(lambda data: 'appendfsync = "everysec"\n')
    with tidelog.connect(root) as db:
        assert db.fsync == "everysec"
        with pytest.raises(tidelog.DataError, match="asks for more"):
            connected(root, "always")


def test_the_policy_of_serve(tmp_path: Path) -> None:
    """It serves with always, or with less and a warning."""

    def chosen(root: Path, config: Config | None = None) -> tuple[str, bool]:
        config = config or Config()
        warns = choose_policy(root, config, new=not root.exists())
        return config["appendfsync"], warns

    new, old = tmp_path / "new", tmp_path / "old"
    assert chosen(new) == ("always", False)
    tidelog.open(old).close()
    assert chosen(old) == ("everysec", True)
    said = Config()
    said.take("appendfsync", "everysec", "")
    assert chosen(old, said) == ("everysec", False)
    Stored(old).update(lambda data: "port = 1\n")
    remembered = Config()
    assert Stored(old).load(remembered)
    assert chosen(old, remembered) == ("always", False)


def test_serve_warns_of_less(tmp_path: Path) -> None:
    """And says how to change it; of a store that it made itself it has nothing to say."""
    for root, warns in ((tmp_path / "old", True), (tmp_path / "new", False)):
        if warns:
            tidelog.open(root).close()
        for _ in range(2):
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                port = other.getsockname()[1]
            with served(root, "--port", str(port)) as process, tidelog.connect(root) as db:
                assert db.fsync == ("everysec" if warns else "always")
                process.terminate()
                process.wait()
                assert process.stderr is not None
                said = process.stderr.read()
            text = f"tidelog config {root} set appendfsync=always port={port}"
            assert (text in said.decode()) is warns


def test_a_store_that_a_server_made_says_so(root: Path) -> None:
    """It keeps the policy at its next start, and is a store like others."""
    with ended_owner(root), tidelog.connect(root) as db:
        db.set("a", "1")
    lines = (root / "STORE").read_text().splitlines()
    assert lines[:2] == ["tidelog store", "format 1"] and lines[3] == "fsync always"
    config = Config()
    choose_policy(root, config, new=False)
    assert config["appendfsync"] == "always"
    with tidelog.open(root) as db:
        assert db.get("a") == b"1"
