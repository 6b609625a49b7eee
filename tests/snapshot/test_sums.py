"""Tests of the sums in the row META, which tell whether the rows of a commit are all there."""

from __future__ import annotations

import msgpack
import pytest

from tidelog.snapshot.rows.sums import Sums, sums_in

SUMS = Sums().pack()


def test_sums_are_found_in_the_row() -> None:
    assert sums_in(msgpack.packb({"sums": SUMS})) == SUMS


@pytest.mark.parametrize(
    "row",
    [
        None,
        b"",
        b"\xc1",
        b"\x01",
        msgpack.packb({"format": 1}),
        msgpack.packb({"sums": 7}),
        msgpack.packb({"sums": SUMS[1:]}),
        b"\x81\x91\x01" + msgpack.packb(SUMS),
    ],
    ids=[
        "none",
        "empty",
        "no-msgpack",
        "no-map",
        "no-sums",
        "a-number",
        "too-short",
        "a-list-as-key",
    ],
)
def test_a_row_without_sums_has_none(row: bytes | None) -> None:
    """Also a damaged row: its checksum tells of the damage later."""
    assert sums_in(row) is None
