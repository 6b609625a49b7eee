"""Living: the workers of a queue that certainly live, as the process that has its store open knows it."""

from __future__ import annotations

from tidelog.jobs.work.fetch import Fetch
from tidelog.jobs.work.known import Known


def waiting_workers(known: Known) -> set[bytes]:
    """[lock] The names of those that wait for jobs of a queue and group, of whose lane 0 this is."""
    waiters = (waiter.work for waiter in known.core.waiting.at(known.place))
    group = known.group_key
    return {
        work.worker
        for work in waiters
        if isinstance(work, Fetch) and work.options.group_key == group
    }


def living_workers(known: Known) -> set[bytes]:
    """[lock] These, those that hold jobs and whose connection or thread has not ended, and the consumers of this
    process.
    """
    found = {each.worker for lane in known.all_lanes() for each in lane.deliveries()}
    consumers = (reference() for reference in known.workers.valuerefs())
    found |= {each.worker.encode() for each in consumers if each is not None}
    return found | waiting_workers(known)
