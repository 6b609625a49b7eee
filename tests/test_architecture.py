"""The places that ARCHITECTURE.md names exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
HOPS = sorted(set(re.findall(r"`([a-z_/]+)\.py:([A-Za-z_.]+)`", TEXT)))
WALKS = re.findall(r"(?:^\| `[a-z_/]+\.py:.*\n)+", TEXT, re.MULTILINE)


@pytest.mark.parametrize("file, name", HOPS)
def test_a_hop_exists(file: str, name: str) -> None:
    found: object = import_module("tidelog." + file.replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)


def test_a_walk_has_ten_hops_at_most() -> None:
    assert len(WALKS) == 8
    assert all(walk.count("\n") <= 10 for walk in WALKS)
