"""`tidelog serve` takes a store over while clients of 0.1 put, and by turns from an owner of 0.1: no put is lost."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.client.owners import ended_owner, is_running, owner_of, served
from tests.client.test_handover import Client, say, values_of
from tests.client.versions.test_versions import Party, version_of
from tests.until import until

import tidelog


@pytest.mark.slow
def test_in_turns(root: Path, tmp_path: Path) -> None:
    rounds(root, tmp_path, 4, 2, 2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_in_turns_for_long(root: Path, tmp_path: Path) -> None:
    rounds(root, tmp_path, 100, 14, 3)


@pytest.mark.slow
def test_a_client_of_an_earlier_version_knows_no_operator(root: Path, tmp_path: Path) -> None:
    """It starts an owner of its version all the same, which the operator's server ends."""
    with ended_owner(root), ExitStack() as stack:
        party = Party(str(root), tmp_path, stack)
        party.start("0.1", "open").ended()
        say(root, "port = 0", 'started = "by-operator"')
        with ended_owner(root):
            pass
        crowd = party.start("0.1", "crowd", "old", "1")
        until(lambda: len(crowd.said) > 10, "it does not put")
        assert version_of(root, party.pythons) == "0.1"
        with served(root):
            seen = len(crowd.said)
            until(lambda: len(crowd.said) > seen, "it does not go on")
            crowd.process.send_signal(signal.SIGTERM)
            put = crowd.ended()
            assert sorted(values_of(root)) == sorted(put)


def rounds(root: Path, folder: Path, count: int, new: int, old: int) -> None:
    """Each round has a server that takes over and is ended, and clients of both versions that see no error."""
    put: list[str] = []
    with ended_owner(root), ExitStack() as stack:
        party = Party(str(root), folder, stack)
        party.start("0.1", "open").ended()  # it makes no store beside a tidelog.toml
        say(root, "hz = 20")
        for number in range(count):
            put += one_round(root, party, number, new, old)
    with ended_owner(root):
        stored = values_of(root)
    assert sorted(stored) == sorted(put)


def one_round(root: Path, party: Party, number: int, new: int, old: int) -> list[str]:
    """Returns the values whose puts were acknowledged."""
    version = ("0.1", "this")[number % 2]
    ending = (signal.SIGTERM, signal.SIGKILL)[number // 2 % 2]
    with ended_owner(root):
        pass  # also one that waits for the lock since the round before
    party.start(version, "open", str(number)).ended()
    before = owner_of(root)
    assert version_of(root, party.pythons) == version
    crowds = [party.start("0.1", "crowd", f"{number}-old{n}", str(old)) for n in range(2)]
    clients = [Client(root, f"{number}-new{n}") for n in range(new)]

    def all_put() -> None:
        """Return once each client has put something more, or has seen an error."""
        seen = [len(each.said) for each in crowds] + [len(each.put) for each in clients]
        until(
            lambda: (
                all(
                    each.process.poll() is not None or len(each.said) > n
                    for each, n in zip(crowds, seen, strict=False)
                )
                and all(
                    each.error or len(each.put) > n
                    for each, n in zip(clients, seen[len(crowds) :], strict=True)
                )
            ),
            "a client does not go on",
        )

    all_put()
    with served(root) as process:
        until(lambda: not is_running(before), "the owner does not end")
        all_put()
        with tidelog.connect(root, start=False) as db:
            assert db.config_get("hz")["hz"] == "20"
        assert owner_of(root) == process.pid
        process.send_signal(ending)
        process.wait()
    all_put()
    for each in crowds:
        each.process.send_signal(signal.SIGTERM)
    return [value for each in crowds for value in each.ended()] + [
        value for each in clients for value in each.end()
    ]
