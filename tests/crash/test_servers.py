"""Servers that are killed under load keep what they answered, and one that loses it, or answers wrongly, is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidelog.crash import servers
from tidelog.crash.client import BadReply, Client, replies, taken
from tidelog.crash.hooked import HookedFile
from tidelog.crash.model import Model
from tidelog.crash.oracle import Kind
from tidelog.crash.servers import SERVERS, kill_servers
from tidelog.crash.shrink import shrink, tried_again
from tidelog.crash.trace import unpack


def test_what_was_answered_is_there_after_two_kills(tmp_path: Path) -> None:
    report = kill_servers("everysec", "seed", tmp_path, random.Random(1), drawn=2)
    assert [finding.words for finding in report.findings] == []
    counts = report.of(SERVERS)
    assert counts.there > counts.tried == 4
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_loses_what_it_answered_is_found_and_tried_again(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = servers.Runs.__init__

    def sound_at_first(self: servers.Runs, policy: str, seed: str, place: Path) -> None:
        made(self, policy, seed, place)
        monkeypatch.setattr(HookedFile, "_append", lambda self, offset, data: None)

    monkeypatch.setattr(servers.Runs, "__init__", sound_at_first)
    (finding,) = kill_servers("no", "seed", room, random.Random(1), drawn=9).findings
    # DURABLE or a checkpoint may prove that something is missing, and then the store does not open, or the second
    # server does not start. If it starts, the worker misses its job there.
    assert finding.kind in {each.value for each in (Kind.LOST, Kind.REFUSED, Kind.DIED, Kind.WRONG)}
    assert finding.layer == SERVERS
    assert shrink(finding, room, 1.0) == finding
    monkeypatch.undo()
    monkeypatch.setattr(servers, "AGAIN", 1)
    # The servers that are tried now are sound.
    assert tried_again(finding, unpack(finding.trace, "finding"), room) is None


def test_a_wrong_answer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = servers.Runs("no", "seed", tmp_path)

    def unknown(self: Client, nbytes: int) -> object:
        return [(b"NONSENSE",)], []

    monkeypatch.setattr(Client, "_add", unknown)
    fault = runs.kill(runs.trouble(random.Random(1))._replace(at=10**6))
    runs.end()
    assert fault is not None and fault.kind is Kind.WRONG
    assert "unknown command" in fault.words


def test_units_of_a_client_are_known_before_they_are_sent() -> None:
    client = Client("orders", random.Random(5))
    model = Model()
    for _ in range(200):
        _, unit = client._draw()
        client.units.append(unit)
        client._model.apply(unit)
        model.apply(unit)
    assert client.own({**model.contents(), b"other": b"1"}) == model.contents()
    assert model.contents().keys() == set(client.keys)


@pytest.mark.parametrize("data", [b"-ERR no\r\n", b"HTTP/1.1 400\r\n"])
def test_an_answer_that_is_an_error_or_no_reply_is_a_bad_one(data: bytes) -> None:
    come = replies()
    come.feed(data)
    with pytest.raises(BadReply, match="ERR no|RESP"):
        taken(come)
