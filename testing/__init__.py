"""For the tests of programs that use tidelog: stores and queues that leave nothing behind, and a clock moved by hand.

    from tidelog import testing

    clock = testing.Clock()
    with testing.store(clock=clock) as db:
        db.set("token", "abc", ex=60)
        clock.advance(61)
        assert db.get("token") is None

`tidelog.testing.fixtures` has the same as pytest fixtures; this package does without pytest.
"""

from tidelog.testing.clock import Clock
from tidelog.testing.queues import aqueue, queue
from tidelog.testing.stores import astore, store

__all__ = ["Clock", "aqueue", "astore", "queue", "store"]
