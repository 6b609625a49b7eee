"""The seats beyond maxclients: an operator can always connect, and other clients learn that there are too many."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.server.conftest import Running, Start
from tests.server.dial import dial, hang_up  # noqa: F401  # a fixture
from tests.server.wire import calls
from tests.until import until

import tidelog
from tidelog.server import reserve
from tidelog.server.reserve import SEATS

REFUSED = b"-ERR max number of clients reached\r\n"
MAX = 3


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "TRIAL_S", 600.0)


@pytest.fixture
def full(start: Start) -> Running:
    """A server with maxclients connected."""
    running = start(maxclients=MAX)
    for _ in range(MAX):
        assert calls(dial(running.port), "PING") == [("+", b"PONG")]
    return running


def test_an_ordinary_client_is_refused_with_its_first_command(full: Running) -> None:
    for words in (
        "GET k",
        "XADD s * f v",
        "KEYS *",
        "MULTI",
        "SUBSCRIBE c",
        "TIDELOG ONCE x 1 INCR n",
    ):
        client = dial(full.port)
        client.raw(words.encode() + b"\r\n")
        assert client.rest() == REFUSED, words
    assert full.server.stats.rejected_connections == 6
    some: Any = full.client(retry=Retry(NoBackoff(), 0))
    with pytest.raises(redis.ConnectionError, match="max number of clients"):
        some.set("k", "v")
    assert len(full.server.sessions) == MAX and not len(full.server.listeners.reserve)


@pytest.mark.parametrize("idle", [0, SEATS - 1, SEATS, 3 * SEATS])
def test_an_operator_gets_a_seat_beside_idle_clients(full: Running, idle: int) -> None:
    silent = [dial(full.port) for _ in range(idle)]
    operator: Any = full.client()
    assert operator.ping() and operator.info("clients")["maxclients"] == MAX
    listed = operator.client_list()
    assert len(listed) == MAX + min(idle + 1, SEATS)
    for client in silent[: max(idle + 1 - SEATS, 0)]:
        assert client.rest() == REFUSED
    for each in listed:
        if int(each["id"]) <= MAX:
            operator.client_kill_filter(_id=each["id"])
    until(lambda: len(full.server.sessions) <= min(idle + 1, SEATS))
    assert operator.set("k", "v"), "there is room, so it is an ordinary client now"


def test_a_password_is_asked_for(start: Start) -> None:
    running = start(maxclients=1, requirepass="pw")
    some: Any = running.client(password="pw")
    some.execute_command("ACL", "SETUSER", "shop", "on", ">tea", "~*", "+@all", "-@admin")
    shop = dial(running.port)
    assert calls(shop, "AUTH shop tea", "PING") == [("+", b"OK"), ("+", b"PONG")]
    assert calls(shop, "CLIENT LIST")[0][:1] == ("-",)
    stranger = dial(running.port)
    assert calls(stranger, "CLIENT LIST") == [("-", b"NOAUTH Authentication required.")]
    operator = dial(running.port)
    told = calls(operator, "AUTH pw", "CONFIG SET maxclients 5", "SET k v")
    assert told == [("+", b"OK")] * 3
    assert calls(shop, "SET k w") == [("+", b"OK")]


def test_operators_give_way_last(full: Running) -> None:
    operators = [dial(full.port) for _ in range(SEATS - 1)]
    for client in operators:
        assert calls(client, "CONFIG GET hz")[0]
    for _ in range(SEATS):  # they take the one seat that is left from each other
        last = dial(full.port)
    for client in operators:
        assert calls(client, "CONFIG GET hz")[0]
    assert calls(last, "CONFIG GET hz", "PING")[1] == ("+", b"PONG")
    assert calls(operators[0], "CONFIG GET hz")[0]
    assert calls(dial(full.port), "PING") == [("+", b"PONG")]
    assert operators[1].rest() == REFUSED  # it has done nothing for longest


def test_a_trial_ends(full: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "TRIAL_S", 0.01)
    assert dial(full.port).rest() == REFUSED


def test_a_process_that_shares_the_store_gets_none(full: Running) -> None:
    with pytest.raises(tidelog.TidelogError, match="max number of clients"):
        tidelog.connect(full.root, timeout=1)
