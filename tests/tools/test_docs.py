"""The examples of the documentation run as they stand, each in an empty directory."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.client.owners import ended_owner
from tests.oracle.differences import TABLE
from tests.tools.conftest import Run
from tests.tools.page_blocks import done_in, examples, outputs, printed
from tests.tools.page_packages import lacking

import tidelog
from tidelog import testing
from tidelog.engine.effects.as_commands import commands
from tidelog.tools.aof.dump import MARKS
from tidelog.tools.aof.records import Record, records_of
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.text import command_line

ROOT = Path(__file__).parents[2]
SHOWING_IDS = "docs/guides/embedded.md"  # its comments show what differs from run to run
PAGES = (
    "docs/index.md",
    SHOWING_IDS,
    "docs/guides/queue.md",
    "docs/guides/tasks.md",
    "docs/guides/delays-and-schedules.md",
    "docs/guides/checkpoints.md",
    "docs/guides/server.md",
    "docs/guides/replication.md",
    "docs/guides/one-machine.md",
    "docs/guides/coming-from-other-queues.md",
    "docs/guides/coming-from-redis-streams.md",
)


# Those of README run in one directory, below.
@pytest.mark.parametrize("page", [*PAGES, pytest.param("README.md", marks=pytest.mark.slow)])
def test_the_examples_of_a_page(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text()
    found = examples(text)
    told = outputs(text, [(line, tmp_path / str(line), source) for line, source in found])
    if page != SHOWING_IDS:
        assert told == {line: list(printed(source)) for line, source in found}


def test_a_page_tells_how_to_install_what_its_blocks_import() -> None:
    """Also the blocks of pages that other tests run, and those in Python that no test runs."""
    untold = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text()
        blocks = re.findall(r"^```(?:python|py)\n(.*?)^```$", text, re.M | re.S)
        names = {name.partition(".")[0] for block in blocks for name in imported(block)}
        untold += [f"{path.name}: {name}" for name in sorted(names.intersection(lacking(text)))]
    assert untold == []


def imported(source: str) -> Iterator[str]:
    """The modules that a block of Python imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_readme_can_be_followed_from_top_to_bottom(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one directory, as a reader does; and what is restored at its end is what the last example made."""
    text = (ROOT / "README.md").read_text()
    found = examples(text)
    told = outputs(text, [(line, tmp_path, source) for line, source in found])
    assert told == {line: list(printed(source)) for line, source in found}
    shown = re.findall(r"^\$ tidelog (snapshot .*|verify .*|export .*)$", text, re.M)
    listed, restored, verified, exported, *_ = shown
    assert listed.split()[-1] == restored.split()[-2].split("/")[0]
    assert restored.split()[-1] == verified.split()[-1]
    monkeypatch.chdir(tmp_path)
    for line in (listed, restored, verified, exported):
        done = run(*line.partition(" # ")[0].split())
        assert (done.code, done.err) == (0, "") and done.out, line
    assert pq.read_table(tmp_path / "tables" / "entries").num_rows == 1


def test_the_worker_of_the_readme_does_what_the_first_example_puts(tmp_path: Path) -> None:
    """The first example puts, the second is `work.py`, and a line calls the worker."""
    text = (ROOT / "README.md").read_text()
    (line, putting), (_, handler), *_ = examples(text)
    told = outputs(text, [(line, tmp_path, putting)])
    assert told == {line: list(printed(putting))} and "tidelog.queue(" in putting
    (tmp_path / "work.py").write_text(handler)
    (command,) = re.findall(r"^\$ tidelog (worker .*)$", text, re.M)
    quick = ("--workers", "1", "--until-idle", "0", "--loglevel", "error")
    with ended_owner(tmp_path / "mail-data"):
        lines = done_in(tmp_path, "-m", "tidelog", *command.split(), *quick)
    assert sorted(lines) == ["sent to ann", "sent to ben"]


# --- which commands a queue's operations are

COMMANDS_PAGE = ROOT / "docs/guides/coming-from-redis-streams.md"


def test_every_operation_is_these_commands(tmp_path: Path) -> None:
    text = COMMANDS_PAGE.read_text()
    blocks = re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S)
    statements = [
        line for block in blocks for line in block.splitlines() if line and not line.startswith(" ")
    ]
    assert len(statements) > 20
    told = "\n".join(block.rstrip("\n") for block in blocks)
    assert list(performed(statements, tmp_path)) == [line for line in told.splitlines() if line]


def performed(statements: list[str], directory: Path) -> Iterator[str]:
    """Each statement, and below it what the log of the store got by it, as `tidelog aof dump` shows it."""
    clock = testing.Clock()
    with tidelog.open(directory, fsync="no", clock=clock) as db:
        names: dict[str, Any] = {"db": db, "clock": clock}
        files = LogFiles(directory)
        seen = 1  # the life's own record, written with the first unit
        for statement in statements:
            yield statement
            exec(statement, names)
            for record in records(files):
                if record.lsn > seen:
                    seen = record.lsn
                    for command in commands(record.effect):
                        yield f"  {MARKS[record.unit]} {command_line(command)}"


def records(files: LogFiles) -> Iterator[Record]:
    for path, frame in files.frames():
        yield from records_of(path, frame)


def test_a_queue_needs_no_command_that_a_client_has_not() -> None:
    """The page's words about other clients: they put, look, take and finish with the plain commands."""
    clock = testing.Clock()
    with testing.store(clock) as db:
        mails = db.queue("mails", retry_after=30)
        db.xadd("mails", {"value": '{"to":"ann"}', "header.trace": "7"})
        (seen,) = mails.peek()
        assert (seen.value, seen.headers) == ({"to": "ann"}, {"trace": "7"})

        assert mails.get("worker-1", block=0) is not None  # and dropped at once
        clock.advance(31)
        (row,) = db.xautoclaim("mails", "workers", "other", min_idle_time=30_000)[1]
        assert row[1] == {b"value": b'{"to":"ann"}', b"header.trace": b"7"}
        assert mails.stats().in_flight == {"other": 1}
        assert mails.get("worker-2", block=0) is None
        db.xackdel("mails", "workers", row[0], ref_policy="ACKED")
        assert (len(mails), db.xlen("mails")) == (0, 0)


def test_every_link_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not lost


def test_every_anchor_is_a_heading() -> None:
    lost = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", page.read_text()):
            if "://" not in target:
                there = page.parent / target if target else page
                headings = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
                if anchor not in map(slug, headings):
                    lost.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert not lost


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# --- the reference of the stream commands, which the code cites as "spec 7.5"

NUMBER = r"\d+(?:\.\d+)*"
CITATION = re.compile(rf"\bspec\s+({NUMBER}(?:(?:,? and |, ){NUMBER})*)", re.I)


def sections() -> set[str]:
    text = (ROOT / "docs/reference/streams.md").read_text()
    return set(re.findall(rf"^#+ ({NUMBER})\.? ", text, re.M))


def cited() -> Iterator[tuple[str, str]]:
    """(place, section) of every citation in the code and its tests."""
    for path in sorted(ROOT.glob("[a-z]*/**/*.py")):
        text = path.read_text()
        for citation in CITATION.finditer(text):
            line = text.count("\n", 0, citation.start()) + 1
            for section in re.findall(NUMBER, citation[1]):
                yield f"{path.relative_to(ROOT)}:{line}", section


def test_every_cited_section_is_in_the_reference() -> None:
    there = sections()
    found = list(cited())
    assert len(found) > 60
    assert not [f"{place}: spec {section}" for place, section in found if section not in there]


def test_the_table_of_differences_names_sections_of_the_reference() -> None:
    there = sections()
    assert not [
        (name, row.section)
        for name, row in TABLE.items()
        if not set(row.section.split(", ")) <= there
    ]
