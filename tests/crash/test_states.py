"""The legal states of a moment: how many there are, that all of them are tried, and what they leave."""

from __future__ import annotations

import random
from pathlib import Path

from tidelog.crash.record import RecordingDisk
from tidelog.crash.states import Cut, cut_at, fingerprint
from tidelog.crash.trace import (
    Create,
    Link,
    Operation,
    Size,
    SyncBegin,
    SyncEnd,
    Trace,
    Tree,
    Unlink,
    Write,
    pack,
    unpack,
)
from tidelog.disk import recipe
from tidelog.disk.simulated import SimulatedDisk

ROOT = Path("/")
TOP = 0  # the number of the directory that holds all others in a trace
A, B, C = b"a" * 512, b"b" * 512, b"c" * 512


def recorder(**files: bytes) -> RecordingDisk:
    tree: Tree = {f"/{name}": content for name, content in files.items()}
    return RecordingDisk(SimulatedDisk.of(tree), ROOT)


def now(disk: RecordingDisk) -> Cut:
    trace = disk.trace({}, [])
    return cut_at(trace, len(trace.operations))


def images(cut: Cut) -> list[Tree]:
    return [cut.image(state) for state in cut.states(random.Random(1), 10_000)]


def test_a_sector_is_old_in_between_or_new_and_its_neighbours_do_not_matter() -> None:
    disk = recorder(f=A + A)
    file = disk.open(ROOT / "f", write=True)
    file.write(0, B + B)
    file.write(0, C)
    cut = now(disk)
    assert cut.count == 3 * 2
    found = {bytes(image["f"] or b"") for image in images(cut)}
    assert found == {first + second for first in (A, B, C) for second in (A, B)}
    file.fdatasync()
    assert now(disk).count == 1


def test_sizes_are_apart_from_data() -> None:
    disk = recorder(f=A)
    file = disk.open(ROOT / "f", write=True)
    file.write(512, B)
    cut = now(disk)
    assert cut.count == 4
    assert {bytes(image["f"] or b"") for image in images(cut)} == {A, A + bytes(512), A + B}


def test_a_name_is_there_only_with_a_sync_of_its_directory() -> None:
    disk = recorder(f=A)
    recipe.publish(disk, ROOT / "g", B)
    assert now(disk).count == 1
    disk.unlink(ROOT / "f")
    disk.create(ROOT / "h").close()
    assert sorted(map(sorted, images(now(disk)))) == [
        ["f", "g"],
        ["f", "g", "h"],
        ["g"],
        ["g", "h"],
    ]
    disk.sync_directory(ROOT)
    assert images(now(disk)) == [{"g": B, "h": b""}]


def test_a_rename_is_never_half() -> None:
    disk = recorder(f=A)
    disk.mkdir(ROOT / "d")
    disk.mkdir(ROOT / "e")
    disk.sync_directory(ROOT)
    disk.rename(ROOT / "f", ROOT / "g")
    disk.move(ROOT / "g", ROOT / "d" / "h")
    disk.move(ROOT / "d" / "h", ROOT / "e" / "i")
    for image in images(now(disk)):
        assert sum(content == A for content in image.values()) == 1, image
    disk.sync_directory(ROOT / "e")
    assert {name for image in images(now(disk)) for name in image} == {"d", "e", "e/i"}


def test_a_replaced_file_is_the_old_one_or_the_new_one() -> None:
    disk = recorder(f=A)
    beside = disk.create(ROOT / "f.new")
    beside.write(0, B)
    beside.fsync()
    disk.rename(ROOT / "f.new", ROOT / "f")
    assert {bytes(image["f"] or b"") for image in images(now(disk))} == {A, B}


def test_a_new_block_shows_what_it_held_before() -> None:
    """A block that was never synced in its file can show a removed file, or this file before it was cut."""
    disk = recorder(old=A + B, cut=C + C)
    recipe.remove(disk, ROOT / "old")
    recipe.publish(disk, ROOT / "f", b"")
    file = disk.open(ROOT / "f", write=True)
    file.write(0, b"new".ljust(1024, b"."))
    found = {bytes(image["f"] or b"") for image in images(now(disk))}
    assert A + B in found
    assert bytes(1024) in found
    file.fdatasync()
    file.write(0, b"NEW")
    assert not any(A in bytes(image["f"] or b"") for image in images(now(disk)))

    file = disk.open(ROOT / "cut", write=True)
    file.truncate(512)
    file.fsync()
    file.write(512, b"x" * 512)
    assert C + C in {bytes(image["cut"] or b"") for image in images(now(disk))}


def test_a_removed_file_shows_through_only_once_its_removal_is_durable() -> None:
    disk = recorder(old=A)
    recipe.publish(disk, ROOT / "f", b"")
    disk.unlink(ROOT / "old")
    file = disk.open(ROOT / "f", write=True)
    file.write(0, B)
    assert not any(image["f"] == A for image in images(now(disk)))
    disk.sync_directory(ROOT)
    assert any(image["f"] == A for image in images(now(disk)))


def test_few_states_are_all_tried_and_many_are_drawn() -> None:
    disk = recorder(f=A * 20)
    file = disk.open(ROOT / "f", write=True)
    file.write(0, B * 12)
    cut = now(disk)
    assert cut.count == 4096
    assert len({fingerprint(image) for image in images(cut)}) == 4096
    file.write(12 * 512, B)
    cut = now(disk)
    assert cut.count == 8192
    drawn = list(cut.states(random.Random(1), 50))
    assert len(set(drawn)) == len(drawn) == 50
    assert {bytes(cut.image(drawn[0])["f"] or b""), bytes(cut.image(drawn[1])["f"] or b"")} == {
        B * 13 + A * 7,
        A * 20,
    }


def test_a_state_can_be_tried_alone_from_the_file_of_its_trace() -> None:
    disk = recorder(f=A)
    file = disk.open(ROOT / "f", write=True)
    file.write(0, B + C)
    trace: Trace = disk.trace({}, [])
    cut = cut_at(trace, len(trace.operations))
    state = list(cut.states(random.Random(1), 1, 0))[0]
    again = cut_at(unpack(pack(trace), "x"), len(trace.operations))
    assert again.image(state) == cut.image(state)
    lost = next(s for s in cut.states(random.Random(1), 10) if s != cut.whole)
    assert again.words(lost)


def test_words_say_what_differs() -> None:
    disk = recorder(f=A)
    file = disk.open(ROOT / "f", write=True)
    file.write(0, B)
    disk.unlink(ROOT / "f")
    cut = now(disk)
    assert cut.words(cut.whole) == []
    assert cut.words((0, 0)) == ["removal of f not done", "sector 0 of f old"]


def test_a_sync_of_some_bytes_covers_the_sectors_that_they_touch() -> None:
    operations: list[Operation] = [Write(1, 500, b"b" * 20), SyncBegin(0, 1, 500, 520), SyncEnd(0)]
    trace = Trace({}, {"f": A + A + A}, [], [*operations, Write(1, 1024, B)])
    assert cut_at(trace, 3).count == 1
    assert cut_at(trace, 4).count == 2


def test_a_second_name_is_durable_apart_from_the_first() -> None:
    # A file gets its contents under one name and its final name by a link, as some programs publish files.
    operations: list[Operation] = [
        Create(1, TOP, "beside"),
        Size(1, 7),
        SyncBegin(0, 1),
        SyncEnd(0),
        Link(1, TOP, "f"),
        Unlink(1, TOP, "beside"),
    ]
    trace = Trace({}, {}, [], [*operations])
    assert unpack(pack(trace), "x") == trace
    cut = cut_at(trace, 5)
    assert sorted(" ".join(image) for image in images(cut)) == ["", "beside", "beside f", "f"]
    synced: list[Operation] = [*operations, SyncBegin(1, TOP), SyncEnd(1)]
    assert images(cut_at(trace._replace(operations=synced), 8)) == [{"f": bytes(7)}]
