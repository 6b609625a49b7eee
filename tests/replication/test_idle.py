"""A link over which only signs of life pass stays, however short repl-timeout is: silence is longer than the time
between two of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up
from tests.until import until

from tidelog.replication.feed import BEAT_SECONDS
from tidelog.replication.feeds import Feeds
from tidelog.replication.link import Link
from tidelog.server.offering import Offerings


def test_the_shortest_timeout(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.client().config_set("repl-timeout", 1)
    pair.db.xadd("orders", {"n": 0})
    db, _ = pair.follower(repl_timeout=1)
    caught_up(pair.db, db)
    link = inside.core(db).link
    assert isinstance(link, Link) and link.settings.timeout_s() >= 2 * BEAT_SECONDS
    checked: list[float] = []
    check = Feeds.check

    def note(self: Feeds, now: float, timeout_s: float) -> None:
        checked.append(timeout_s)
        check(self, now, timeout_s)

    def note_offered(self: Any, timeout_s: float) -> None:
        checked.append(timeout_s)

    monkeypatch.setattr(Feeds, "check", note)
    monkeypatch.setattr(Offerings, "tick", note_offered)
    until(lambda: len(checked) >= 4, "nobody looks for silence")
    assert min(checked) >= 2 * BEAT_SECONDS
