"""Segments listed beside a writer: a listing may pass over a name that came while it was made."""

from __future__ import annotations

from pathlib import Path

from tests.aof.world import ROOT, Life, Past

from tidelog.aof.reading.reader import segment_paths
from tidelog.aof.reading.recovery import read_all
from tidelog.crash.logs import UUID
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.effect import Effect


class PassingOver(SimulatedDisk):
    """Each of its next listings passes over one of these names, the last first."""

    names: list[str] = []

    def listdir(self, path: Path) -> list[str]:
        found = super().listdir(path)
        if self.names:
            found.remove(self.names.pop())
        return found


def test_what_a_listing_passed_over_is_no_missing_segment() -> None:
    disk, past = PassingOver(), Past()
    life = Life(disk, past, segment_bytes=500, chunk_bytes_min=256)
    for _ in range(40):
        life.add(2, 40)
    directory = ROOT / "aof"
    paths = segment_paths(disk, directory)
    assert len(paths) > 5
    for passed_over in ([1], [2, 4]):
        disk.names = [paths[at].name for at in passed_over]
        assert segment_paths(disk, directory) == paths
    for at in range(1, len(paths) - 1):
        disk.names = [paths[at].name]
        records: list[Effect] = []
        read_all(disk, directory, UUID, records.extend, live=True)
        assert records[-1] == past.units[-1][-1]
    life.close()
