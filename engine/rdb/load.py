"""Build a stream from the facts of an RDB image, fact by fact.

    Loading(stream)   an empty stream, in a state
    .take(fact)       its nodes, its counters, its groups, its dedup tables
    .end()            once, after the last

All facts are kept. Two are put right, since no Redis writes them so: entries-added below the number of entries, and
times before 1970.
"""

from __future__ import annotations

from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.idlist import id_of
from tidelog.engine.rdb.facts import Counters, DedupFact, Fact, GroupFact, Node
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.lag import estimate
from tidelog.engine.streams.stream import COUNTER_MAX, Stream


class Loading:
    """A stream that is being built.

    stream    may be replaced by the same stream from a checkpoint between two facts
    ahead     groups whose entries-read is above entries-added; Redis itself refuses to load them
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.ahead = 0
        self._node: Node | None = None  # the last one: it becomes the open tail
        self._top = 0  # no entry above this ID was ever removed

    def take(self, fact: Fact) -> None:
        """Take one fact, in the order of the image."""
        if isinstance(fact, Node):
            self._seal()
            self._node = fact
            self._top = max(self._top, *fact.ids)
        elif isinstance(fact, Counters):
            self._counters(fact)
        elif isinstance(fact, GroupFact):
            self._group(fact)
        else:
            self._dedup(fact)

    def end(self) -> None:
        """Note up to which ID entries may be missing. Nobody knows what was trimmed, so it is every ID seen."""
        stream = self.stream
        stream.removed_max = max(stream.removed_max, self._top, stream.last_id)

    def _seal(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            self.stream.load_node(node.ids, node.rows, node.deleted)

    def _counters(self, fact: Counters) -> None:
        stream, node = self.stream, self._node
        self._node = None
        if node is not None:
            stream.restore_tail(node.ids, node.rows, node.deleted, void=True)
            stream.length += len(node.ids) - node.deleted.bit_count()
        added = stream.length if fact.entries_added is None else fact.entries_added
        stream.set_id(
            fact.last_id, min(max(added, stream.length), COUNTER_MAX), fact.max_deleted_id or 0
        )
        stream.first_known = None
        self._top = max(self._top, stream.max_deleted_id)

    def _group(self, fact: GroupFact) -> None:
        stream = self.stream
        read = fact.entries_read
        if read is None:
            read = estimate(stream, fact.last_id)
        read = max(read, UNKNOWN)
        self.ahead += read > stream.entries_added
        group = stream.groups[fact.name] = Group(fact.name, fact.last_id, read, stream.next_group)
        stream.next_group += 1
        for name, seen, active in fact.consumers:
            consumer = group.create_consumer(name, seen)
            consumer.active_time = seen if active is None else max(active, -1)
        ids, times = fact.ids, fact.times
        if not len(ids):
            return
        self._top = max(self._top, ids[-1] if fact.wide else id_of(ids[-1]))
        if min(times) < 0:
            times = type(times)("q", [max(time, 0) for time in times])
        group.pending.fill((ids, times, fact.owners, fact.counts), fact.nacked, fact.wide)

    def _dedup(self, fact: DedupFact) -> None:
        idmp = Idmp(fact.duration, fact.maxsize)
        newest_first = sorted(fact.producers, key=lambda producer: producer[1][-1][1])
        for pid, iids in newest_first:
            idmp.producers[pid] = dict(iids)
            self._top = max(self._top, *(entry_id for _, entry_id in iids))
        idmp.added, idmp.duplicates = fact.added, fact.duplicates
        if fact.producers or (fact.added, fact.duplicates) != (0, 0) or not _is_default(idmp):
            self.stream.idmp = idmp


def _is_default(idmp: Idmp) -> bool:
    fresh = Idmp()
    return (idmp.duration, idmp.maxsize) == (fresh.duration, fresh.maxsize)
