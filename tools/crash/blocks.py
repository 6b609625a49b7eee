"""Blocks: the writes of a real file system to its disk, any of which a power cut may take after the last flush.

An ext4, or an xfs, lies in a file that notes in order the blocks that the kernel writes and the flushes that it asks
for (tools/crash/fuse.py). A store works on it, and each promise is noted in its place. Then power is cut at random
moments: everything before the last flush is on the disk, and of the rest any part, sector by sector. The kernel mounts
what is left and replays its journal, and the store is opened.

Where `machine` and `xfs` show the one state that a shutdown leaves, this shows those of a disk with a volatile cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from tidelog.crash.explore import Finding, Report
from tidelog.crash.killed import judged, live
from tidelog.crash.oracle import Fault
from tidelog.crash.run import scene_of
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import Promised, Trace, Unit, pack, versions
from tidelog.disk.real import RealDisk
from tidelog.tools.crash.fuse import BlockFile, CannotServe, Event, Noted, Written
from tidelog.tools.crash.shutdowns import CannotMount, Kind, call, make_in, own_mounts

BLOCKS: Final = "blocks"
XFS_BLOCKS: Final = "xfs-blocks"
IMAGE: Final = "image"  # in the base of a finding's trace
# Images are kept and written whole, so they are small. Asked for by its name, mkfs.xfs makes an xfs below 300 MB.
RECORDED: Final = {
    BLOCKS: Kind("ext4", ("-F",), 16 << 20),
    XFS_BLOCKS: Kind("xfs", ("-f", "--unsupported"), 16 << 20),
}
SECTOR: Final = 512
PLACE: Final = "store-on-blocks"


class Recorded:
    """The life of a store on a recorded disk.

    units   of the store
    base    the disk when the file system was mounted
    events  after that
    """

    def __init__(self, scene: Scene, scratch: Path, kind: Kind) -> None:
        """`scratch` is an existing empty directory. Raises CannotMount."""
        own_mounts(kind)
        disk = RealDisk()
        below, mounted = scratch / "below", scratch / "mounted"
        with ExitStack() as undo:
            for directory in (below, mounted):
                disk.mkdir(directory)
                undo.callback(disk.rmdir, directory)
            try:
                file = BlockFile(below, kind.nbytes)
            except CannotServe as error:
                raise CannotMount(str(error)) from error
            undo.callback(file.close)
            undo.callback(call, "umount", below)
            make_in(file.path, kind)
            call("mount", "-o", "loop", file.path, mounted)
            undo.callback(call, "umount", mounted)
            disk.mkdir(mounted / PLACE)
            disk.sync_directory(mounted)
            self.base = bytearray(kind.nbytes)
            for event in file.events():
                _apply(self.base, event)
            self.units: list[Unit] = live(
                scene, disk, mounted / PLACE, lambda *counts: file.note(counts)
            ).units
            self.events = file.events()

    def cuts(self, rng: random.Random, drawn: int) -> Iterator[tuple[bytes, Promised]]:
        """Disks that a power cut leaves at random moments, and what was promised then."""
        moments = sorted(rng.randrange(len(self.events) + 1) for _ in range(drawn))
        durable = bytearray(self.base)
        pending: list[Written] = []
        promised = Promised(0, 0, 0)
        at = 0
        for moment in moments:
            for event in self.events[at:moment]:
                if isinstance(event, Written):
                    pending.append(event)
                elif isinstance(event, Noted):
                    promised = Promised(*event.event)
                else:
                    for each in pending:
                        _apply(durable, each)
                    pending = []
            at = moment
            image = bytearray(durable)
            for part in _left(pending, rng):
                _apply(image, part)
            yield bytes(image), promised


def _apply(image: bytearray, event: Event) -> None:
    if isinstance(event, Written):
        image[event.offset : event.offset + len(event.data)] = event.data


def _left(pending: list[Written], rng: random.Random) -> list[Written]:
    """The part of unflushed writes that a power cut leaves, by one of five strategies."""
    way = rng.randrange(5)
    if way == 0:
        return []
    if way == 1:
        return pending
    if way == 2:
        return pending[: rng.randrange(len(pending) + 1)]
    if way == 3:
        return [each for each in pending if rng.random() < 0.5]
    return [
        Written(each.offset + at, each.data[at : at + SECTOR])
        for each in pending
        for at in range(0, len(each.data), SECTOR)
        if rng.random() < 0.5
    ]


class Mounted:
    """Mounts images one after another, and judges the store in each. Raises CannotMount."""

    def __init__(self, scratch: Path, kind: Kind) -> None:
        own_mounts(kind)
        self._disk = RealDisk()
        self._image, self._place = scratch / "image", scratch / "again"
        self._disk.mkdir(self._place)

    def judge(self, image: bytes, units: list[Unit], promised: Promised) -> Fault | None:
        """The fault of the store on an image."""
        with closing(self._disk.create(self._image)) as file:
            file.write(0, image)
        call("mount", "-o", "loop", self._image, self._place)
        try:
            # A disk remembers the directories that it guards, so each image has one of its own.
            return judged(RealDisk(), self._place / PLACE, units, promised, power=True)
        finally:
            call("umount", self._place)

    def close(self) -> None:
        """Remove the files."""
        if self._disk.exists(self._image):
            self._disk.unlink(self._image)
        self._disk.rmdir(self._place)


def cut_blocks(
    layer: str,
    policy: str,
    seed: str,
    scratch: Path,
    drawn: int,
    stopping: Callable[[], bool] = lambda: False,
) -> Report:
    """Record a workload and cut the power of its disk `drawn` times. Ends with the first finding. Raises CannotMount.

    layer      of RECORDED
    scratch    an existing empty directory
    stopping   called before each cut; true ends the work
    """
    rng = random.Random(f"{seed}/{layer}/{policy}")
    scene = scene_of(policy, seed, rng)
    recorded = Recorded(scene, scratch, RECORDED[layer])
    report = Report()
    counts = report.of(layer)
    counts.there = len(recorded.events) + 1
    with closing(Mounted(scratch, RECORDED[layer])) as mounted:
        for image, promised in recorded.cuts(rng, drawn):
            if stopping():
                break
            counts.tried += 1
            counts.distinct += 1
            fault = mounted.judge(image, recorded.units, promised)
            if fault is not None:
                counts.count(fault.kind)
                about = {**scene.about(), **versions()}
                trace = Trace(about, {IMAGE: image}, recorded.units, [promised])
                kind = fault.kind.value
                report.findings.append(Finding(layer, pack(trace), 1, (), True, kind, fault.words))
                break
    return report


def try_again(scratch: Path, trace: Trace, layer: str) -> Fault | None:
    """The fault of a finding of a layer again. Raises CannotMount."""
    image, (promised,) = trace.base[IMAGE], trace.operations
    assert image is not None
    assert isinstance(promised, Promised)
    with closing(Mounted(scratch, RECORDED[layer])) as mounted:
        return mounted.judge(image, trace.units, promised)
