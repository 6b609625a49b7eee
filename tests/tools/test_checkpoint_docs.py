"""The guides show snapshots and `verify` as the commands print them, sizes, times and hashes apart."""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run
from tests.tools.page_blocks import shows

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
                db.set("token", "x", ex=3_650 * 86_400)  # beyond the real time, too
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


def likened(text: str) -> str:
    """An output without what differs from run to run."""
    for pattern, name in (
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"\b[0-9a-f]{64}\b", "HASH"),
        (r"\b[0-9a-f]{32}\b", "UUID"),
        (r"\b[\d.,]+ ([KM]i)?B\b", "SIZE"),
        (r"\.aof@\d+", ".aof@AT"),
        (r" +", " "),
    ):
        text = re.sub(pattern, name, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


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
        told = likened(done.out + done.err)
        assert shows(likened(said), told), (line, told)


def test_the_fields_of_info(tmp_path: Path) -> None:
    page = (GUIDES / "checkpoints.md").read_text()
    section = page.split("## What `info()` says", 1)[1].split("\n## ")[0]
    with tidelog.open(tmp_path / "s") as db:
        fields = list(db.info())
    with tidelog.open(tmp_path / "s", read_only=True) as db:
        others = db.info()
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == [f for f in fields if f not in others]


# --- "When a store does not open"


def older(root: Path, name: str) -> None:
    shutil.rmtree(root / name)
    shutil.copytree(root.parent / "older" / name, root / name)


def emptied(root: Path) -> None:
    for path in (root / "aof").glob("*.aof"):
        path.unlink()


def cut(root: Path) -> None:
    path = root / "checkpoint/data.mdb"
    path.write_bytes(path.read_bytes()[:12_288])


def of_another(root: Path) -> None:
    with tidelog.open(root.parent / "other") as db:
        db.set("a", "b")
        db.checkpoint()
    shutil.copy(root.parent / "other/checkpoint/data.mdb", root / "checkpoint/data.mdb")


def of_a_twin(root: Path) -> None:
    """The aof/ of a copy that went on by itself, as far as this one did."""
    live(root.parent / "older", 1)
    older(root, "aof")


def unfinished(root: Path) -> None:
    shutil.copy(root / "STORE", root / "RESTORING")
    (root / "STORE").unlink()


def live(root: Path, turn: int) -> None:
    """A life of a store, whose records always have the same sizes."""
    with tidelog.open(root, **KEPT_SMALL) as db:
        for n in range(500):
            db.xadd("orders", {"n": n}, id=f"{1000 + turn}-{n + 1}")
        db.checkpoint()
        db.xadd("orders", {"n": 0}, id=f"{1000 + turn}-{n + 2}")


KEPT_SMALL: Any = {"fsync": "no", "segment_bytes": 4096, "retain_bytes": 0}
REFUSED: dict[str, Callable[[Path], object]] = {
    "the segments before this one are missing, and so is": lambda root: shutil.rmtree(
        root / "checkpoint"
    ),
    "the log ends with LSN": lambda root: older(root, "aof"),
    "the log begins with LSN": lambda root: older(root, "checkpoint"),
    "there are no segments, but the checkpoint holds records through": emptied,
    "they are from different histories": of_a_twin,
    "is the checkpoint of another store": of_another,
    "the file ends here": cut,
    "it contains an unfinished restore": unfinished,
}


def test_every_refusal_of_the_table(tmp_path: Path) -> None:
    page = (GUIDES / "checkpoints.md").read_text()
    table = page.split("## When a store does not open", 1)[1]
    listed = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", table, re.M)[1:]
    parts = [[part.strip(" ,") for part in text.split("...")] for text in listed]
    assert [text[0] for text in parts] == list(REFUSED), "each, and in this order"
    whole = tmp_path / "whole"
    for turn in range(2):
        live(whole, turn)
        if not turn:
            shutil.copytree(whole, tmp_path / "older-kept")
    for (text, damage), rest in zip(REFUSED.items(), parts, strict=True):
        for name in ("root", "older", "other"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        shutil.copytree(whole, tmp_path / "root")
        shutil.copytree(tmp_path / "older-kept", tmp_path / "older")
        damage(tmp_path / "root")
        for read_only in (False, True):
            with pytest.raises(tidelog.CannotOpen) as caught:
                tidelog.open(tmp_path / "root", read_only=read_only)
            for part in rest if text != "the file ends here" else rest[:1]:
                assert part in str(caught.value)
