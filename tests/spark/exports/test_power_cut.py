"""An export that ends at any operation, by a kill or a power cut: what looks sealed then is whole, and it can go on."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import some_and_all
from tests.spark.exports.test_export import in_this_process
from tests.spark.histories import Life, Told

from tidelog.disk.simulated import SimulatedDisk
from tidelog.spark.exports import export as exports
from tidelog.spark.exports import seal, task
from tidelog.spark.exports.target import LocalTarget

ROOT = Path("/exports")
TO = ROOT / "deep/to"
OPTIONS = {"targetPartitionBytes": "300"}


def one_by_one(do: Callable[[Any], object], items: Sequence[Any]) -> None:
    for item in items:
        do(item)


class Simulated(LocalTarget):
    """A target on a simulated disk, which has one thread. No other process is there to lock out."""

    together = 3
    each = staticmethod(one_by_one)

    def source(self, file: str) -> Any:
        return io.BytesIO(self.read(file))

    def locked(self, identity: str) -> Any:
        self.make(self.path)
        return nullcontext()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    life = Life(tmp_path_factory.mktemp("power") / "store", 51)
    try:
        life.play(40)
        return life.told()
    finally:
        life.close()


def on(monkeypatch: pytest.MonkeyPatch, disk: SimulatedDisk) -> None:
    def target(place: str) -> LocalTarget:
        return Simulated(Path(place), disk)

    for module in (exports, seal, task):
        monkeypatch.setattr(module, "target_of", target)


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.mkdir(ROOT)
    disk.sync_directory(ROOT.parent)
    return disk


def run(told: Told, *by: str) -> exports.Exported:
    return exports.export(
        str(told.path),
        str(TO),
        tables=("entries", "groups"),
        options=OPTIONS,
        partition_by=by,
        runner=in_this_process,
    )


def is_whole(disk: SimulatedDisk) -> bool:
    """Whether there is a seal. If so, each file is as it says."""
    if not disk.exists(TO / seal.NAME):
        return False
    found = seal.read_export(str(TO))
    seal.verify(found, *found.seal.files)
    return True


@pytest.mark.parametrize("by", [(), ("stream",)], ids=["together", "by stream"])
@pytest.mark.parametrize("count", some_and_all(12, 50))
def test_it_ends_at_any_operation(
    monkeypatch: pytest.MonkeyPatch, told: Told, count: int, by: tuple[str, ...]
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    r = random.Random(seed)
    counted = new_disk()
    operations: list[str] = []

    counted.before = lambda operation, path: operations.append(operation)
    on(monkeypatch, counted)
    calm = run(told, *by)
    wanted = {file.name: file.blake2b for file in calm.seal.files}
    assert len(wanted) > 4
    sealed = 0
    total = len(operations)
    after_mkdir = [at + 1 for at, operation in enumerate(operations) if operation == "mkdir"]
    for stop in [*r.sample(range(total), count), *after_mkdir, total - 2, total - 1]:
        disk = new_disk()
        images: list[SimulatedDisk] = []
        at = 0

        def cut(operation: str, path: Path) -> None:
            nonlocal at
            if at == stop:
                images.append(disk.power_loss(r))
                raise KeyboardInterrupt
            at += 1

        disk.before = cut
        on(monkeypatch, disk)
        with pytest.raises(KeyboardInterrupt):
            run(told, *by)
        disk.before = None
        image = r.choice((images[0], disk))  # the power is gone, or only the process
        if stop in after_mkdir:
            image = disk
        on(monkeypatch, image)
        sealed += is_whole(image)
        if not image.exists(ROOT):
            image.mkdir(ROOT)
        done = run(told, *by)
        assert {file.name: file.blake2b for file in done.seal.files} == wanted
        # Everything is durable when the export returns, even what the attempt before wrote.
        after = image.synced()
        on(monkeypatch, after)
        assert is_whole(after), stop
    assert sealed


def test_folders_are_synced_together(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    """A sync takes some milliseconds, and an export may have a folder for each of many streams."""
    disk = new_disk()
    operations: list[tuple[str, Path]] = []
    disk.before = lambda operation, path: operations.append((operation, path))
    on(monkeypatch, disk)
    monkeypatch.setattr(Simulated, "together", 100)
    done = exports.export(str(told.path), str(TO), partition_by=("stream",), runner=in_this_process)
    assert len(done.seal.of_table("entries")) > 2
    synced = [path for operation, path in operations if operation == "sync_directory"]
    assert synced.count(TO / "entries") == 1
