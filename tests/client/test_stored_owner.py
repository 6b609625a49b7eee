"""tidelog.toml and the owner that a client starts: it serves all that the file says, or nothing."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import redis
from tests.client.owners import kill, owners

import tidelog
from tidelog.server.config.stored import NAME, Stored


def say(root: Path, *lines: str) -> None:
    Stored(root).update(lambda data: "".join(f"{line}\n" for line in lines))


def free_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        port: int = link.getsockname()[1]
        return port


def config(db: tidelog.SharedStore[str], name: str) -> str:
    found = db.execute_command("CONFIG", "GET", name)
    return str(found[name] if isinstance(found, dict) else found[1])


def test_an_owner_serves_what_the_file_says(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("ORDERS_PASSWORD", "sesame")
    say(
        root,
        'started = "by-clients"',
        f"port = {port}",
        "maxclients = 77",
        'requirepass = { env = "ORDERS_PASSWORD" }',
    )
    for _ in range(2):
        with tidelog.connect(root, decode_responses=True) as db:
            assert config(db, "maxclients") == "77"
            assert config(db, "appendfsync") == "always"
            db.xadd("s", {"a": "1"})
            with redis.Redis(port=port, password="sesame") as client:
                assert client.xlen("s") > 0
            with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
                client.ping()
            kill(root)
    assert f"port = {port}" in (root / NAME).read_text()


def test_an_owner_keeps_as_many_dead_jobs_as_the_file_says(root: Path) -> None:
    say(root, "keep-dead-jobs = 2")
    with tidelog.queue(root, "mails", shared=True) as mails:
        for value in range(4):
            mails.put(value)
            job = mails.get("anna", block=10)
            assert job is not None and job.fail("no such address")
        assert [job.value for job in mails.dead] == [2, 3]
        kill(root)
        assert [job.value for job in mails.dead] == [2, 3]  # the next owner


def test_all_or_nothing(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        say(root, 'started = "by-clients"', f"port = {port}")
        with pytest.raises(tidelog.CannotOpen, match=f"cannot listen on 127.0.0.1 port {port}"):
            tidelog.connect(root)
    say(
        root,
        'started = "by-clients"',
        "tls-port = 1",
        'tls-cert-file = "/no/such.pem"',
        'tls-key-file = "/no/such.pem"',
    )
    with pytest.raises(tidelog.CannotOpen, match=r"ConfigError: .*/no/such.pem"):
        tidelog.connect(root)
    say(root, 'requirepass = { env = "TIDELOG_NONE" }')
    with pytest.raises(tidelog.CannotOpen, match="requirepass: the variable TIDELOG_NONE is not"):
        tidelog.connect(root)
    assert not owners(root) and not os.path.lexists(root / "serve.sock")
    say(root, "hz = 20")
    with tidelog.connect(root, decode_responses=True) as db:
        assert config(db, "hz") == "20"


def test_config_rewrite_of_an_owner(root: Path) -> None:
    """It makes the file, if need be; the next owner has the same settings."""
    with tidelog.connect(root, decode_responses=True) as db:
        db.execute_command("CONFIG", "SET", "hz", "50")
        db.execute_command("ACL", "SETUSER", "ann", "on", ">sesame", "~*", "+@all")
        db.execute_command("CONFIG", "REWRITE")
        text = (root / NAME).read_text()
        assert (
            "hz = 50\n" in text
            and "user ann on sanitize-payload #" in text
            and "sesame" not in text
        )
        assert 'started = "by-clients"\n' in text
        assert "port" not in text and "idle-exit" not in text and "appendfsync" not in text
        db.execute_command("CONFIG", "SET", "requirepass", "open")
        with pytest.raises(tidelog.TidelogError, match="requirepass is a password, and this file"):
            db.execute_command("CONFIG", "REWRITE")
        assert (root / NAME).read_text() == text
        kill(root)
        assert config(db, "hz") == "50" and config(db, "requirepass") == ""
        assert "ann" in str(db.execute_command("ACL", "LIST"))
