"""Another clone beside this one: each side imports its own tidelog, and the ratio says which is better."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import pytest
from bench.command import command
from bench.ours import Streams
from bench.race import each
from bench.run import STORES, Run, Version
from bench.worker import ROOT
from click.testing import CliRunner
from tests.bench.probe import Probe

FOLDERS = (
    "resp disk engine aof snapshot store jobs api replication server client integrations crash tools "
    "spark testing src"
).split()
SLOWER = """

from time import process_time as _clock

_xadd = Store.xadd

def _slow(self, *arguments, **options):
    until = _clock() + 0.0005
    while _clock() < until:
        pass
    return _xadd(self, *arguments, **options)

Store.xadd = _slow
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the clone, of another version, in which one XADD takes half a millisecond longer."""
    clone = tmp_path_factory.mktemp("other")
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=ignored)
    (clone / "store/version.py").write_text('"""Changed."""\n\n__version__ = "0.0.test"\n')
    with (clone / "api/sync.py").open("a") as file:
        file.write(SLOWER)
    return clone


def test_each_side_has_its_own_tidelog(tmp_path: Path, other: Path) -> None:
    versions = [Version.of(ROOT), Version.of(other)]
    assert versions[1].number == "0.0.test" != versions[0].number
    with Run(tmp_path, 1, 0.002, versions=versions) as run:
        with run.sides(_Placed) as sides:
            found = [side.call("version") for side in sides]
        with run.peers(STORES, "SMALL", durable=False) as peers:
            assert not peers, "two versions are compared without baselines"
    assert [number for number, _ in found] == [version.number for version in versions]
    for (_, file), clone in zip(found, (ROOT, other), strict=True):
        assert clone.resolve() in Path(file).resolve().parents


class _Placed(Probe):
    def __init__(self, directory: str) -> None:
        super().__init__()


def test_both_take_turns_and_the_slower_one_is_seen(tmp_path: Path, other: Path) -> None:
    versions = [Version.of(ROOT), Version.of(other)]
    with (
        Run(tmp_path, 3, 0.01, versions=versions) as run,
        run.sides(Streams, "SMALL", "no") as sides,
    ):
        (rate,) = run.race(each(sides, "add")).values()
    assert rate.other is not None and rate.other < 2_000 < rate.this


def test_the_report_has_a_ratio_for_each_row(tmp_path: Path, other: Path) -> None:
    words = ["--only", "xadd", "--quick", "--against", str(other), "--dir", str(tmp_path)]
    done = CliRunner().invoke(command, [*words, "--memory-disk", "--check"])
    lines = [line for line in done.output.splitlines() if " XADD" in line or "xadd_many" in line]
    ratios = [float(line.split("│")[4]) for line in lines if line.split("│")[4].strip()]
    assert len(ratios) == 4 and ratios[0] > 5
    assert f"other: tidelog 0.0.test of {other}" in " ".join(done.output.split())
    assert "geometric mean of the ratios: " in done.output
    assert not list(tmp_path.iterdir())


def test_what_is_no_clone_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["--against", str(tmp_path), "--memory-disk"])
    assert done.exit_code == 2 and "no clone of tidelog" in done.output


def test_a_clone_that_cannot_be_imported_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "src/tidelog").mkdir(parents=True)
    (tmp_path / "src/tidelog/__init__.py").write_text("raise ImportError('half a clone')\n")
    with pytest.raises(click.UsageError, match="cannot be imported"):
        Version.of(tmp_path)
    assert "half a clone" in capfd.readouterr().err


def test_a_clone_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/tidelog").symlink_to(ROOT / "src/tidelog")
    with pytest.raises(click.UsageError, match="a process started there imported"):
        Version.of(tmp_path)
