"""ID lists: both forms carry the same IDs, and the form is a function of the IDs alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.engine import idlist

narrow_ids = st.builds(
    lambda ms, seq: ms << 64 | seq,
    st.integers(0, 2**42 - 1),
    st.integers(0, 2**22 - 1),
)
any_ids = st.one_of(narrow_ids, st.integers(0, 2**128 - 1))


@given(st.lists(any_ids))
def test_what_is_packed_comes_back(ids: list[int]) -> None:
    packed = idlist.pack(ids)
    assert idlist.unpack(packed) == ids
    assert idlist.count(packed) == len(ids)
    assert idlist.pairs(packed) == [(id >> 64, id & idlist.SEQ_MASK) for id in ids]
    assert idlist.texts(packed) == [b"%d-%d" % pair for pair in idlist.pairs(packed)]
    if ids:
        assert idlist.last_id(packed) == ids[-1]
        assert idlist.last_pair(packed) == idlist.pairs(packed)[-1]


@given(st.lists(narrow_ids, max_size=40))
def test_a_narrow_list_is_made_of_lists_of_one(ids: list[int]) -> None:
    packed = idlist.pack(ids)
    assert isinstance(packed, bytes)
    assert list(idlist.singles(packed)) == [idlist.pack([id]) for id in ids]


@given(st.lists(any_ids))
def test_the_form_follows_from_the_ids(ids: list[int]) -> None:
    assert isinstance(idlist.pack(ids), bytes) == all(
        id >> 64 < 2**42 and id & idlist.SEQ_MASK < 2**22 for id in ids
    )


@given(narrow_ids, narrow_ids)
def test_keys_order_as_ids(a: int, b: int) -> None:
    assert (idlist.key_of(a) < idlist.key_of(b)) == (a < b)
    assert idlist.id_of(idlist.key_of(a)) == a
    assert idlist.keys(idlist.pack([a, b])).tolist() == [idlist.key_of(a), idlist.key_of(b)]  # type: ignore[arg-type]


@given(
    st.sampled_from([0, 1, 1700000000000, 2**42 - 1, 2**42, 2**64 - 1]),
    st.sampled_from([0, 1, 2**22 - 3, 2**22 - 1, 2**22, 2**63]),
    st.integers(0, 5),
)
def test_a_run_is_the_list_of_its_ids(ms: int, seq: int, count: int) -> None:
    ids = [ms << 64 | seq + i for i in range(count)]
    packed = idlist.pack_run(ms, seq, count)
    assert idlist.unpack(packed) == ids
    assert packed == idlist.pack(ids)


def test_the_bytes_of_a_narrow_list_are_fixed() -> None:
    assert idlist.pack([(2**41 + 1) << 64 | 5]) == (2**22 + 5).to_bytes(8, "little")
    assert idlist.pack([0]) == (-(2**63)).to_bytes(8, "little", signed=True)
    assert idlist.pack([]) == idlist.EMPTY == b""
    assert idlist.pack([7, 2**63]) == (0, 7, 0, 2**63)


@given(
    st.integers(0, 2**43),
    st.one_of(
        st.integers(0, 2**23),
        st.integers(2**22 - 50, 2**22 + 5),
        st.integers(2**64 - 40, 2**64 - 1),
    ),
    st.integers(1, 40),
    st.booleans(),
)
def test_a_gapless_run_is_packed_as_one_by_one(ms: int, seq: int, count: int, swap: bool) -> None:
    first = ms << 64 | seq
    ids = list(range(first, first + count))  # may go on in the next millisecond
    if swap and count > 3:
        ids[1], ids[2] = ids[2], ids[1]
    packed = idlist.pack(ids)
    assert idlist.unpack(packed) == ids
    assert packed == idlist.pack(tuple(ids))
    if isinstance(packed, bytes):
        assert packed == b"".join(map(idlist.pack_one, ids))  # type: ignore[arg-type]
