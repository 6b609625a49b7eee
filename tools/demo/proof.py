"""The proof of a demo, read from its files: every line was put once, delivered, and done with one result; the poisoned
one was dead for a while.

`Ledger` reads the effects of the log in order and uses nothing else: no reply, no state, no counter of a store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat

from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.as_commands import added
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.keys.state import State
from tidelog.engine.streams.columns import EntryRow
from tidelog.engine.streams.stream import Stream
from tidelog.tools.demo.child import LINES, POISON, RESULTS, decode, result

JOBS = LINES.encode()
DONE = RESULTS.encode()
DEAD = JOBS + b":dead"
# The streams in which a queue notes paused and failed jobs. The proof does not read them; the other streams suffice.
NOTES = JOBS + b":holds", JOBS + b":failures"
ADDS = (e.XADD, e.XADD_NODE, e.XADD_MANY)
OF_ALL = (e.EPOCH, e.XREOPEN)
OTHERS = {  # other effects that the demo writes
    JOBS: (e.STREAM_CREATE, e.XGROUP_CREATE, e.XGROUP_CREATECONSUMER, e.XGROUP_SETID),
    DONE: (e.STREAM_CREATE,),
    # These effects on dead jobs are not counted: the state after the replay shows whether all dead jobs were redriven.
    DEAD: (e.STREAM_CREATE, e.XDEL),
    **dict.fromkeys(NOTES, (*ADDS, e.STREAM_CREATE, e.XDEL, e.XTRIM)),
}


class Ledger:
    """Counts by entry ID, filled effect by effect.

    put            job -> its entry's fields and values, in the order of the log; redriven ones in `redriven`
    deliveries     job -> number of its deliveries; a renewed lease is a claim with the same count
    retries        deliveries after a failure, as opposed to those after a kill
    acks           job -> number of its acknowledgements
    results        line number -> its results
    dead           dead entry -> its row, also after it was redriven
    """

    def __init__(self) -> None:
        self.put: dict[int, EntryRow] = {}
        self.redriven: dict[int, EntryRow] = {}
        self.put_twice: list[int] = []
        self.deliveries: Counter[int] = Counter()
        self.retries = 0
        self.acks: Counter[int] = Counter()
        self.results: dict[int, list[bytes]] = {}
        self.dead: dict[int, dict[bytes, bytes]] = {}
        self.gone_early = 0
        self.apart = 0
        self.foreign = 0
        self._counts: dict[int, int] = {}
        self._paused: set[int] = set()
        # Line numbers that the current unit acknowledged, and line numbers that got a result or became dead in it.
        self._acked: Counter[int] = Counter()
        self._ended: Counter[int] = Counter()

    def take(self, effect: Effect) -> None:
        """Count one effect of the log."""
        opcode = effect[0] & OPCODE
        if opcode not in OF_ALL:
            self._book(opcode, effect)
        if effect[0] & END:
            self.apart += self._acked != self._ended
            self._acked.clear()
            self._ended.clear()

    def _book(self, opcode: int, effect: Effect) -> None:
        key = effect[2]
        if opcode in ADDS and key in (JOBS, DONE, DEAD):
            for entry, row in added(effect):
                self._add(key, entry, row)
        elif key == JOBS and opcode == e.DELIVER:
            self._claim(idlist.unpack(effect[5]), effect[7])
        elif key == JOBS and opcode == e.XNACK:
            back = idlist.unpack(effect[4])
            self._paused.update(back)
            self._counts.update(zip(back, _each(effect[5])))
        elif key == JOBS and opcode in (e.XACK, e.XACKDEL):
            done = idlist.unpack(effect[4])
            self.acks.update(done)
            self._acked.update(map(self._line, done))
        elif key == JOBS and opcode == e.XDEL:
            self.gone_early += sum(job not in self.acks for job in idlist.unpack(effect[3]))
        else:
            self.foreign += opcode not in OTHERS.get(key, ())

    def _add(self, key: bytes, entry: int, row: EntryRow) -> None:
        fields = dict(zip(row[::2], row[1::2], strict=True))
        if key == JOBS:
            if entry in self.put or entry in self.redriven:
                self.put_twice.append(entry)
            (self.redriven if b"origin" in fields else self.put)[entry] = row
            return
        number, text = decode(fields[b"value"])
        self._ended[number] += 1
        if key == DONE:
            self.results.setdefault(number, []).append(text)
        else:
            self.dead[entry] = fields

    def _claim(self, jobs: Sequence[int], counts: int | tuple[int, ...]) -> None:
        for job, count in zip(jobs, _each(counts)):
            if count > self._counts.get(job, 0):
                self._counts[job] = count
                self.deliveries[job] += 1
                self.retries += job in self._paused
                self._paused.discard(job)

    def _line(self, job: int) -> int:
        """The number of a job's line; -1 for none."""
        row = self.put.get(job) or self.redriven.get(job)
        return decode(row[1])[0] if row else -1

    @property
    def redeliveries(self) -> int:
        """Deliveries beyond the first of each job."""
        return self.deliveries.total() - len(self.deliveries)

    def faults(self, lines: Sequence[bytes], poisoned: int) -> list[str]:
        """A line for each violation of the promise; [] if the promise was kept for these lines."""
        expected = [(b"value", b"%d %b" % item) for item in enumerate(lines)]
        rows = list(self.put.values())
        ids = {**self.put, **self.redriven}
        found = {n: self.results.get(n, []) for n in range(len(lines))}
        dead = [decode(fields[b"value"])[0] for fields in self.dead.values()]
        told = any(
            decode(fields[b"value"])[0] == poisoned
            and any(POISON in error["error"] for error in json.loads(fields[b"errors"]))
            for fields in self.dead.values()
        )
        out = [
            ("lines that were not put", max(0, len(expected) - len(rows))),
            ("jobs that match no line of the file", max(0, len(rows) - len(expected))),
            ("jobs that differ from their line", sum(a != b for a, b in zip(rows, expected))),
            ("entry IDs used twice", len(self.put_twice)),
            ("entry IDs out of order", _disorder(self.put) + _disorder(self.redriven)),
            ("jobs never delivered", sum(job not in self.deliveries for job in ids)),
            ("jobs never acknowledged", sum(job not in self.acks for job in ids)),
            ("jobs acknowledged more than once", sum(n > 1 for n in self.acks.values())),
            ("acknowledgements of unknown jobs", sum(job not in ids for job in self.acks)),
            ("deliveries of unknown jobs", sum(job not in ids for job in self.deliveries)),
            ("jobs deleted before they were done", self.gone_early),
            ("lines without a result", sum(not texts for texts in found.values())),
            ("lines with several results", sum(len(texts) > 1 for texts in found.values())),
            (
                "wrong results",
                sum(text != result(lines[n]) for n, texts in found.items() for text in texts),
            ),
            ("results that belong to no line", sum(n not in found for n in self.results)),
            ("units with an acknowledgement but without its result", self.apart),
            ("poisoned lines without evidence among the dead jobs", int(not told)),
            ("dead lines that were not redriven", abs(len(dead) - len(self.redriven))),
            ("records that the demo never wrote", self.foreign),
        ]
        return [f"{count:,} {what}" for what, count in out if count]


def leftovers(state: State, results: int) -> list[str]:
    """A line for each thing that is left in the state after the replay and should not be; [] if it is only the
    results.
    """
    out = []
    for key in (JOBS, DEAD):
        stream = state.databases[0].keys.get(key)
        if not isinstance(stream, Stream):
            out.append(f"no stream {key.decode()}")
            continue
        pending = sum(len(group.pending) for group in stream.groups.values())
        if stream.length or pending:
            out.append(
                f"{stream.length:,} entries left in {key.decode()}, {pending:,} of them pending"
            )
    stored = state.databases[0].keys.get(DONE)
    length = stored.length if isinstance(stored, Stream) else 0
    if length != results:
        out.append(f"{length:,} results in the queue instead of {results:,}")
    return out


def _each(counts: int | tuple[int, ...]) -> Iterable[int]:
    return repeat(counts) if isinstance(counts, int) else counts


def _disorder(ids: Iterable[int]) -> int:
    listed = list(ids)
    return sum(a >= b for a, b in zip(listed, listed[1:]))
