"""Streams whose nodes lie in a checkpoint held in memory."""

from __future__ import annotations

from tests.engine.driver import Engine
from tests.engine.rows_in_memory import RowsInMemory

from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.freeze import freeze, release, settle
from tidelog.engine.rowkeys import DATA, page_prefix, page_row
from tidelog.engine.streams.stream import Stream

NODES = 80
SLOTS = 10


class Rows(RowsInMemory):
    """Counts the DATA rows read, and finds any row damaged that is in `bad`."""

    def __init__(self) -> None:
        super().__init__()
        self.data_read = 0
        self.bad: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        self.data_read += key[:1] == DATA
        if key in self.bad:
            raise CorruptBlock("row does not match its checksum")
        return super().get(key)

    def _row(self, at: int, prefix: bytes) -> tuple[bytes, bytes] | None:
        row = super()._row(at, prefix)
        if row is not None and row[0] in self.bad:
            raise CorruptBlock("row does not match its checksum")
        return row


class Store(Engine):
    """An engine over rows, with one stream of full nodes: entry n has the ID n-1, node i the entries from 10 i on."""

    def __init__(self, nodes: int = NODES) -> None:
        super().__init__()
        self.rows = Rows()
        self.state.cold = self.rows
        self.ctx.settings.stream_node_max_entries = SLOTS
        for number in range(nodes * SLOTS):
            self.add(number)

    def add(self, number: int) -> None:
        self.raw(b"XADD", b"s", b"%d-1" % number, b"f", b"value %d" % number)

    @property
    def stream(self) -> Stream:
        stream = self.state.databases[0].keys[b"s"]
        assert isinstance(stream, Stream)
        return stream

    def commit(self) -> None:
        frozen = freeze(self.state)
        while frozen.take_some(1):
            pass
        self.rows.write(list(frozen.rows(self.rows)))
        settle(self.state, frozen)
        release(self.state, self.stream)

    def pages(self) -> list[int]:
        """First IDs of the pages, as entry numbers."""
        prefix = page_prefix(self.stream.number)
        return [int.from_bytes(key[9:], "big") >> 64 for key, _ in self.rows.rows(prefix)]

    def of_kind(self, kind: bytes) -> int:
        return sum(key[:1] == kind for key in self.rows.all())


def entry(number: int) -> int:
    return number << 64 | 1


def stored(nodes: int = NODES) -> Store:
    store = Store(nodes)
    store.commit()
    return store


def spoil_page(store: Store) -> None:
    store.rows.bad.add(page_row(store.stream.number, entry(320)))


def lose_page(store: Store) -> None:
    store.rows.put(page_row(store.stream.number, entry(320)), None)


def scramble_page(store: Store) -> None:
    store.rows.put(page_row(store.stream.number, entry(320)), b"\x93\x01")
