"""A link over TLS, of a server and of `tidelog.follow`."""

from __future__ import annotations

import re
import ssl
from typing import Any

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


def secured(pair: Pair, db: Any, ours: Files, **more: Any) -> Any:
    """A server of a store that speaks TLS."""
    return pair.serve(
        db,
        tls_port=free_port(),
        tls_cert_file=ours.certificate,
        tls_key_file=ours.key,
        tls_auth_clients="no",
        **more,
    )


@pytest.fixture
def port(pair: Pair, ours: Files) -> int:
    """Of a leader that speaks TLS."""
    found: int = secured(pair, pair.open("secured"), ours).tls_port
    return found


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


@pytest.mark.parametrize(
    ("plain", "tls", "advice"),
    [
        (False, True, "no valid certificate: self-signed certificate.*`tls-ca-cert-file`"),
        (False, False, "closed the connection before it answered; .* set `tls-replication` to yes"),
        (True, True, "no answer in time; .* set `tls-replication` to no"),
    ],
)
def test_a_link_that_cannot_be_says_what_to_set(
    pair: Pair, port: int, plain: bool, tls: bool, advice: str
) -> None:
    url = f"tidelog://127.0.0.1:{pair.port if plain else port}"
    with tidelog.follow(pair.root / "follower", url, tls=tls, timeout=2) as db:
        until(lambda: re.search(advice, db.info()["replication"]["link_failure"]))


def test_a_pair_hands_over_with_tls(pair: Pair, ours: Files) -> None:
    options = {"tls_replication": True, "tls_ca_cert_file": ours.certificate}
    old, new = pair.open("old"), pair.open("new")
    first = secured(pair, old, ours, **options)
    second = secured(pair, new, ours, replicaof=f"127.0.0.1 {first.tls_port}", **options)
    old.xadd("orders", {"n": 1})
    caught_up(old, new)
    clients = [
        pair.client(each.tls_port, ssl=True, ssl_cert_reqs="none") for each in (first, second)
    ]
    told = clients[0].info("replication")["slave0"]
    assert (told["ip"], told["port"]) == ("127.0.0.1", second.tls_port)
    clients[0].execute_command("FAILOVER", "TIMEOUT", 60_000)
    until(lambda: clients[1].role()[0] == b"master", "it was not promoted")
    until(lambda: clients[0].info("replication")["master_link_status"] == "up")
    assert clients[0].info("replication")["master_port"] == second.tls_port


@pytest.mark.parametrize("tls", [True, False])
def test_the_announced_port_is_of_the_kind_of_the_link(pair: Pair, ours: Files, tls: bool) -> None:
    """With both kinds of ports, as in Redis: that for TLS with `tls-replication`, else the other."""
    leader = secured(pair, pair.open("secured"), ours)
    follower = secured(
        pair,
        pair.open("follower"),
        ours,
        tls_replication=tls,
        tls_ca_cert_file=ours.certificate,
        replicaof=f"127.0.0.1 {leader.tls_port if tls else leader.port}",
    )
    client = pair.client(leader.port)
    until(lambda: client.info("replication")["connected_slaves"] == 1)
    shown = client.info("replication")["slave0"]["port"]
    assert shown == (follower.tls_port if tls else follower.port)


def test_a_copy_of_the_leaders_data(pair: Pair, ours: Files) -> None:
    db = pair.open("released", segment_bytes=8192, retain_bytes=0)
    for number in range(100):
        db.xadd("orders", {"n": number, "text": "x" * 500})
    db.checkpoint()
    serving = secured(pair, db, ours)
    context = ssl.create_default_context(cafile=ours.certificate)
    url = f"tidelog://127.0.0.1:{serving.tls_port}"
    with tidelog.follow(pair.root / "follower", url, tls=context) as copy:
        until(lambda: copy.info()["replication"].get("link") == "connected")
        caught_up(db, copy)
        assert copy.digest() == db.digest()
    assert serving.server is not None
    assert serving.server.replicating.feeding.offerings.begun == 1
