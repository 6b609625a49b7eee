"""A link over TLS, of a server and of `tidelog.follow`."""

from __future__ import annotations

import ssl

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up
from tests.server.access.test_tls import Files, made
from tests.server.ports import free_port
from tests.until import until

import tidelog


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The leader's certificate, which is its own authority."""
    return made(tmp_path_factory.mktemp("certificates"), "leader")


@pytest.fixture
def port(pair: Pair, ours: Files) -> int:
    """Of a leader that speaks TLS."""
    serving = pair.serve(
        pair.open("secured"),
        tls_port=free_port(),
        tls_cert_file=ours.certificate,
        tls_key_file=ours.key,
        tls_auth_clients="no",
    )
    return serving.tls_port


def test_a_served_follower(pair: Pair, port: int, ours: Files) -> None:
    db = pair.open("follower")
    serving = pair.serve(
        db, replicaof=f"127.0.0.1 {port}", tls_replication=True, tls_ca_cert_file=ours.certificate
    )
    client = pair.client(serving.port)
    until(lambda: client.info("replication")["master_link_status"] == "up")


def test_an_embedded_follower(pair: Pair, port: int, ours: Files) -> None:
    context = ssl.create_default_context(cafile=ours.certificate)
    url = f"tidelog://127.0.0.1:{port}"
    with tidelog.follow(pair.root / "follower", url, tls=context) as db:
        until(lambda: db.info()["replication"].get("caught_up"))


def test_an_unknown_certificate_is_refused(pair: Pair, port: int) -> None:
    url = f"tidelog://127.0.0.1:{port}"
    with tidelog.follow(pair.root / "follower", url, tls=True) as db:
        until(lambda: "certificate" in db.info()["replication"]["link_failure"])


def test_a_copy_of_the_leaders_data(pair: Pair, ours: Files) -> None:
    db = pair.open("released", segment_bytes=8192, retain_bytes=0)
    for number in range(100):
        db.xadd("orders", {"n": number, "text": "x" * 500})
    db.checkpoint()
    serving = pair.serve(
        db,
        tls_port=free_port(),
        tls_cert_file=ours.certificate,
        tls_key_file=ours.key,
        tls_auth_clients="no",
    )
    context = ssl.create_default_context(cafile=ours.certificate)
    url = f"tidelog://127.0.0.1:{serving.tls_port}"
    with tidelog.follow(pair.root / "follower", url, tls=context) as copy:
        until(lambda: copy.info()["replication"].get("link") == "connected")
        caught_up(db, copy)
        assert copy.digest() == db.digest()
    assert serving.server is not None
    assert serving.server.replicating.feeding.offerings.begun == 1
