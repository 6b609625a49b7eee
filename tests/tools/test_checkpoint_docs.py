"""What the guides show of snapshots and of `verify` is what the commands say, sizes, times and hashes apart."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog import testing

GUIDES = Path(__file__).parents[2] / "docs/guides"


def orders_data(root: Path, *, mistake: bool) -> None:
    """The store of the examples; `mistake`: with a snapshot, and with a stream deleted behind it."""
    clock = testing.Clock()
    with tidelog.open(root, fsync="no", clock=clock, segment_bytes=65536, retain_bytes=0) as db:
        db.queue("mails").put({"to": "ann"})
        db.xgroup_create("orders", "packers", id="0", mkstream=True)
        for n in range(3700):
            clock.advance(0.1)
            db.xadd("orders", {"item": "tea", "n": n})
            if n == 2999:
                db.xreadgroup("packers", "anna", {"orders": ">"}, count=40)
                db.set("token", "x", ex=86400)
                db.snapshot() if mistake else db.checkpoint()
        if mistake:
            clock.advance(60)
            db.delete("orders")


def sections(page: str) -> str:
    """The parts of a guide whose console blocks are about this."""
    text = (GUIDES / page).read_text()
    if page == "checkpoints.md":
        return text
    return "".join(
        part
        for part in re.split(r"^(?=## )", text, flags=re.M)
        if re.match("## (snapshot|verify)", part)
    )


def shown(page: str) -> Iterator[tuple[str, str]]:
    """(command line, what it says) of the console blocks."""
    for block in re.findall(r"^```console\n(.*?)^```$", sections(page), re.M | re.S):
        for example in re.split(r"^\$ ", block, flags=re.M)[1:]:
            line, _, said = example.partition("\n")
            yield line, said


def likened(text: str) -> list[str]:
    """The lines of an output without what differs from run to run."""
    for pattern, name in (
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"\b[0-9a-f]{64}\b", "HASH"),
        (r"\b[0-9a-f]{32}\b", "UUID"),
        (r"\b[\d.,]+ ([KM]i)?B\b", "SIZE"),
        (r"\.aof@\d+", ".aof@AT"),
        (r" +", " "),
    ):
        text = re.sub(pattern, name, text)
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("page", ["command-line.md", "checkpoints.md"])
def test_console(page: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    orders_data(Path("orders-data"), mistake=page == "checkpoints.md")
    examples = list(shown(page))
    assert len(examples) >= 4
    for line, said in examples:
        words = shlex.split(line)
        assert words[0] == "tidelog"
        done = run(*words[1:])
        assert likened(done.out + done.err) == likened(said), line
