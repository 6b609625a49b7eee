"""Reads of a follower that are more than one command: a queue's figures, and what is not replicated at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal

import tidelog


def test_a_queue_is_looked_at_and_not_worked(pair: Pair) -> None:
    db = pair.follow()
    jobs = pair.db.queue("jobs")
    for number in range(3):
        jobs.put({"n": number})
    caught_up(pair.db, db)
    looking = db.queue("jobs")
    # the age of the oldest job goes on between both looks
    theirs, ours = (replace(each.stats(), oldest_seconds=None) for each in (jobs, looking))
    assert ours == theirs and ours.waiting == 3
    assert looking.peek() == jobs.peek() and len(looking.peek()) == 3
    with pytest.raises(tidelog.ReadOnlyError):
        looking.put({"n": 3})
    equal(pair.db, db)


def test_published_messages_stay_where_they_are(pair: Pair) -> None:
    _, port = pair.follower()
    subscriber = pair.client(port).pubsub()
    subscriber.subscribe("news")
    assert subscriber.get_message(timeout=60)["type"] == "subscribe"
    client = pair.client()
    assert client.publish("news", "there") == 0
    client.xadd("orders", {"n": 1})
    assert client.wait(1, 60_000) == 1
    pair.client(port).publish("news", "here")
    assert subscriber.get_message(timeout=60)["data"] == b"here"
    subscriber.close()
