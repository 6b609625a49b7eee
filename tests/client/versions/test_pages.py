"""The examples of 0.1's pages, run by this version: they do what the pages say."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.client.versions.earlier import COMMIT, ROOT, checked
from tests.tools.page_blocks import examples, outputs, printed

SHOWING_IDS: Final = "docs/guides/embedded.md"  # its comments show what differs from run to run
PAGES: Final = (
    "README.md",
    "docs/index.md",
    SHOWING_IDS,
    "docs/guides/queue.md",
    "docs/guides/delays-and-schedules.md",
    "docs/guides/checkpoints.md",
    "docs/guides/server.md",
    "docs/guides/replication.md",
    "docs/guides/coming-from-persist-queue.md",
    "docs/guides/coming-from-celery-or-rq.md",
    "docs/guides/coming-from-redis-streams.md",
)


@pytest.mark.soak
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_an_earlier_page(page: str, tmp_path: Path) -> None:
    checked()
    command = ["git", "show", f"{COMMIT}:{page}"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = examples(text)
    told = outputs(text, [(line, tmp_path / str(line), source) for line, source in found])
    assert found
    if page != SHOWING_IDS:
        assert told == {line: list(printed(source)) for line, source in found}
