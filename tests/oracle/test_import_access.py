"""tidelog import of a redis-server that speaks TLS, that gives a user few rights, or that dies while it is followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.oracle.server import SEVEN
from tests.oracle.test_import import agree, imported, place, views
from tests.oracle.test_import_live import fill, served, without_lists
from tests.server.access.test_tls import made
from tests.server.ports import free_port

from tidelog.tools import cli, exits
from tidelog.tools.importing import from_server

__all__ = ["place"]  # a fixture

# The rights that the guide names for each way; nothing else is allowed.
RIGHTS = {
    "psync": "+psync +replconf +info",
    "dump": "+info +select +scan +type +dump +pttl ~*",
}
FOLLOWING = {"psync": ["--until-caught-up"], "dump": []}


@pytest.mark.parametrize("by", ["dump", "psync"])
def test_over_tls(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    by: str,
) -> None:
    files, port = made(place, "redis"), free_port()
    secured = {
        "tls_port": f"{port}",
        "tls_cert_file": files.certificate,
        "tls_key_file": files.key,
        "tls_auth_clients": "no",
    }
    with served(place, SEVEN, requirepass="secret", **secured) as (server, _):
        link = server.connect()
        link.call(b"AUTH", b"secret")
        fill(link, 12)
        link.call(b"PERSIST", b"until")
        url = f"rediss://:secret@localhost:{port}"
        words = ["--by", by, *FOLLOWING[by]]
        # Its certificate is signed by itself: nobody vouches for it, until this process does.
        assert cli.run(["import", str(tmp_path / "u"), url, *words]) == exits.SYSTEM
        told = capsys.readouterr().err
        assert (told.count("\n"), "no valid certificate" in told) == (1, True), told
        assert not (tmp_path / "u").exists() or os.listdir(tmp_path / "u") == ["LOCK"]
        monkeypatch.setenv("SSL_CERT_FILE", files.certificate)
        agree(imported(tmp_path / "t", url, *words), without_lists(views(link)))
        link.close()


@pytest.mark.parametrize("by", ["dump", "psync"])
def test_a_user_with_the_rights_that_the_guide_names(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    guide = Path("docs/guides/moving-from-redis.md").read_text()
    with served(place) as (server, url):
        link = server.connect()
        fill(link, 13)
        link.call(b"PERSIST", b"until")
        mine = url.replace("redis://", "redis://mover:pass@")
        words = ["--by", by, *FOLLOWING[by]]
        rights = RIGHTS[by].split()
        for right in rights:
            assert right in guide, right
        for missing in rights:
            fewer = [right.encode() for right in rights if right != missing]
            link.call(b"ACL", b"SETUSER", b"mover", b"reset", b"on", b">pass", *fewer)
            target = tmp_path / missing
            assert cli.run(["import", str(target), mine, *words]) == exits.REFUSED, missing
            told = capsys.readouterr().err
            assert (told.count("\n"), "NOPERM" in told) == (1, True), told
            assert os.listdir(target) == ["LOCK"]
        link.call(
            b"ACL", b"SETUSER", b"mover", b"reset", b"on", b">pass", *RIGHTS[by].encode().split()
        )
        agree(imported(tmp_path / "t", mine, *words), without_lists(views(link)))
        link.close()


@pytest.mark.parametrize("way", ["--follow", "--until-caught-up"])
def test_a_server_that_dies_while_it_is_followed(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    way: str,
) -> None:
    with served(place) as (server, url):
        link = server.connect()
        fill(link, 14)
        acknowledge = from_server._Following._acknowledge
        sent: list[bytes] = []

        def killed(following: from_server._Following) -> None:
            acknowledge(following)
            if not sent:  # the dump is taken, and no command yet
                sent.append(link.call(b"XADD", b"late", b"5-5", b"f", b"v"))
            elif following._whole:  # a command was taken, too
                server.kill()

        monkeypatch.setattr(from_server._Following, "_acknowledge", killed)
        monkeypatch.setattr(from_server._Following, "_has_all", lambda following: False)
        monkeypatch.setattr(from_server, "ACK_S", 0.1)
        target = tmp_path / "t"
        assert cli.run(["import", str(target), url, way]) == exits.SYSTEM
        link.close()
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n"), "Traceback" in told.err) == ("", 1, False), told.err
    assert url.removeprefix("redis://") in told.err
    assert os.listdir(target) == ["LOCK"]
