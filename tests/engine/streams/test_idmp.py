"""The tables of dedup IDs: a checkpoint has those of its moment, whatever is recorded while it is written."""

from __future__ import annotations

import pytest

from tidelog.engine.streams.idmp import Idmp

NOW = 1_700_000_000_000


def entry(number: int) -> int:
    return NOW << 64 | number


@pytest.mark.parametrize("change", ["record", "expire"])
def test_a_frozen_table_stays_as_it_was(change: str) -> None:
    table = Idmp(duration=10, maxsize=2)
    table.record(b"ann", b"first", entry(1))
    frozen = table.freeze()
    if change == "record":
        table.record(b"ann", b"second", entry(2))
        table.record(b"ann", b"third", entry(3))
    else:
        table.expire(b"ann", NOW + 11_000)
    assert [*frozen.records()] == [(b"ann", b"first", entry(1))]
    left = [(b"ann", b"second", entry(2)), (b"ann", b"third", entry(3))]
    assert [*table.records()] == (left if change == "record" else [])
