"""Every bit of a small store flipped: refused, or provably not promised; never wrong data."""

from collections.abc import Iterator
from itertools import islice

import pytest
from tests.aof.world import Life, Past, read_back
from tests.rounds import some_and_all

from tidelog.aof.errors import AofError
from tidelog.aof.log import FSYNCED
from tidelog.disk.simulated import SimulatedDisk, Tree


def small_store(*, closed: bool) -> tuple[Tree, Past]:
    disk, past = SimulatedDisk(), Past()
    for _ in range(2):
        life = Life(disk, past, segment_bytes=500, chunk_bytes_min=256)
        for i in range(4):
            life.add(2, 20)
            if i % 2 or closed:
                life.wait(FSYNCED)
        life.add(1, 5)
        if closed:
            life.close()
        else:
            disk.kill()
            past.fsynced = len(past.units) - 1
    return disk.tree(), past


def flips(tree: Tree) -> Iterator[tuple[str, int]]:
    """(file, bit) of every bit; of long runs of zeros only some."""
    for name, content in tree.items():
        if content is None:
            continue
        for byte in range(len(content)):
            dense = content[byte - byte % 48 : byte - byte % 48 + 48].strip(b"\0")
            if dense or byte % 64 == 0:
                yield from ((name, byte * 8 + bit) for bit in range(8))


@pytest.mark.parametrize("every", some_and_all(9, 1))
@pytest.mark.parametrize("closed", [True, False])
def test_every_bit(closed: bool, every: int) -> None:
    tree, past = small_store(closed=closed)
    assert past.units_in(read_back(SimulatedDisk.of(tree))) == len(past.units) == 10
    assert sum(name.endswith(".aof") for name in tree) >= 3
    refused = kept = 0
    for name, bit in islice(flips(tree), 0, None, every):
        content = bytearray(tree[name] or b"")
        content[bit // 8] ^= 1 << bit % 8
        try:
            found = read_back(SimulatedDisk.of({**tree, name: bytes(content)}))
        except AofError as error:
            assert name.rpartition("/")[2] in str(error) or "STORE" in name
            assert not name.endswith(("LOCK", "DURABLE")), "a lost proof is no damage"
            refused += 1
        else:
            left = past.units_in(found)
            assert left >= past.fsynced, (name, bit)
            assert left == len(past.units) or name.endswith(".aof")
            kept += 1
    assert refused > 5000 // every and kept > 500 // every


def test_every_missing_file() -> None:
    """A segment that is gone is noticed, whichever it is; DURABLE and LOCK may go."""
    tree, past = small_store(closed=True)
    for name, content in tree.items():
        if content is None:
            continue
        disk = SimulatedDisk.of({key: value for key, value in tree.items() if key != name})
        if name.endswith((".aof", "STORE")):
            with pytest.raises(AofError):
                read_back(disk)
        else:
            assert past.units_in(read_back(disk)) == len(past.units)


def test_every_segment_of_another_copy() -> None:
    """Two copies of a store were used. A segment of one in the other has the right UUID, LSNs and length."""

    def copy(first: int) -> Tree:
        disk, past = SimulatedDisk(), Past()
        life = Life(disk, past, segment_bytes=500, chunk_bytes_min=256)
        while past.next_number() < first:
            pass
        for _ in range(8):
            life.add(2, 20)
        life.close()
        return disk.tree()

    mine, theirs = copy(10), copy(30)
    names = [name for name in mine if name.endswith(".aof")]
    assert len(names) > 2 and {*names} <= {*theirs}
    for name in names:
        with pytest.raises(AofError, match="the next segment proves that it ended with LSN"):
            read_back(SimulatedDisk.of({**mine, name: theirs[name]}))


def test_every_shortened_segment() -> None:
    tree, past = small_store(closed=True)
    for name, content in tree.items():
        if content is None or not name.endswith(".aof"):
            continue
        for length in range(len(content)):
            with pytest.raises(AofError):
                read_back(SimulatedDisk.of({**tree, name: content[:length]}))
