"""Pending entries that hypothesis draws."""

from __future__ import annotations

from hypothesis import strategies as st

from tidelog.engine.groups import by_id, by_owner, by_time, chunks, orders
from tidelog.engine.groups import pending as module

WIDE = [1 << 42 << 64, 5 << 64 | 1 << 22, (1 << 128) - 1]
ids = st.integers(0, 60).map(lambda n: (n // 20 + 1) << 64 | n % 20)
some_ids = st.lists(ids, max_size=30)
# What a delivery names: ascending, most often a stretch.
runs = st.one_of(
    some_ids.map(lambda some: sorted(set(some))),
    st.builds(
        lambda first, n: [i // 20 + 1 << 64 | i % 20 for i in range(first, first + n)],
        st.integers(0, 60),
        st.integers(0, 40),
    ),
)
times = st.integers(0, 8)


def set_load(load: int) -> None:
    """Entries of a chunk, and of what is young beside it; each module has its own name for it."""
    for each in (by_id, by_owner, by_time, chunks, orders):
        setattr(each, "LOAD", load)
    setattr(module, "YOUNG", 2 * load - load // 4)
    setattr(module, "YOUNG_BYTES", 2 * load)  # a quarter of the load, 8 bytes an entry
