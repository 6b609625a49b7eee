"""What the files say about a run of the demo: every line stored once, delivered, acknowledged once.

`Ledger` takes the effects of the log in order and believes nothing else: no reply, no state, no counter of a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidelog.engine import effects as e
from tidelog.engine import idlist
from tidelog.engine.as_commands import added
from tidelog.engine.effects import OPCODE, Effect


class Ledger:
    """Counts by entry ID, filled effect by effect.

    stored         entry ID -> the entry's fields and values, in the order of the log
    deliveries     entry ID -> how often it was given to a worker
    acks           entry ID -> how often it was acknowledged
    """

    def __init__(self, key: bytes, group: bytes) -> None:
        self.key, self.group = key, group
        self.stored: dict[int, tuple[bytes, ...]] = {}
        self.stored_twice: list[int] = []
        self.deliveries: Counter[int] = Counter()
        self.acks: Counter[int] = Counter()
        self.foreign = 0

    def take(self, effect: Effect) -> None:
        """Book one effect of the log."""
        opcode = effect[0] & OPCODE
        if opcode in (e.EPOCH, e.XREOPEN):
            return
        if effect[2] != self.key:
            self.foreign += 1
        elif opcode in (e.XADD, e.XADD_NODE, e.XADD_MANY):
            for id, row in added(effect):
                if id in self.stored:
                    self.stored_twice.append(id)
                self.stored[id] = row
        elif opcode == e.XCLAIM:
            self.deliveries.update(idlist.unpack(effect[5]))
        elif opcode == e.XACK:
            self.acks.update(idlist.unpack(effect[4]))
        elif opcode not in (e.STREAM_CREATE, e.XGROUP_CREATE, e.XGROUP_CREATECONSUMER):
            self.foreign += 1

    def faults(self, lines: Sequence[bytes]) -> list[str]:
        """What contradicts the promise, in words; [] if the promise was kept for these lines."""
        expected = [(b"n", b"%d" % n, b"line", line) for n, line in enumerate(lines)]
        rows = list(self.stored.values())
        ids = self.stored.keys()
        out = [
            (
                "lines that are not stored",
                len(expected) - len(rows) if len(rows) < len(expected) else 0,
            ),
            ("messages that are no line of the file", max(0, len(rows) - len(expected))),
            ("messages that differ from their line", sum(a != b for a, b in zip(rows, expected))),
            ("entry IDs stored twice", len(self.stored_twice)),
            ("entry IDs out of order", sum(a >= b for a, b in zip(ids, list(ids)[1:]))),
            ("messages never delivered", sum(id not in self.deliveries for id in ids)),
            ("messages never acknowledged", sum(id not in self.acks for id in ids)),
            ("messages acknowledged more than once", sum(n > 1 for n in self.acks.values())),
            ("acknowledgements of unknown messages", sum(id not in ids for id in self.acks)),
            ("deliveries of unknown messages", sum(id not in ids for id in self.deliveries)),
            ("records that the demo never wrote", self.foreign),
        ]
        return [f"{count:,} {what}" for what, count in out if count]

    @property
    def redeliveries(self) -> int:
        """Deliveries beyond the first of each message."""
        return self.deliveries.total() - len(self.deliveries)
