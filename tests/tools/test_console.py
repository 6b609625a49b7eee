"""On a terminal: tables are drawn and progress is shown, on standard error only."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.tools.made import Made
from tests.tools.queue_made import START, mails
from tests.tools.terminal import on_a_terminal

from tidelog.testing import Clock


def test_a_table_is_drawn(made: Made) -> None:
    out, err = on_a_terminal("aof", "ls", made.root)
    assert "\u2502" in out and "00000000000000000001.aof" in out
    assert "reading" in err and "reading" not in out


@pytest.mark.parametrize("width", rest_slow([40, 80, 120, 160], 2))
def test_no_id_is_cut_off_where_the_terminal_is_narrow(width: int, tmp_path: Path) -> None:
    """Listed names can be copied into the next command."""
    with mails(tmp_path / "data", Clock(START)):
        pass
    out, _ = on_a_terminal("queue", "dead", "ls", tmp_path / "data", "mails", width=width)
    assert all(id in out for id in ("1700000061000-0", "1700000061000-1", "1700003661000-0"))
    assert "2023-11-14T22:14:21.000Z" in out
    assert "\u2026" not in out  # the sign that rich puts for what it cut off
    assert ("\u2502" in out) == (width >= 120)  # drawn where there is room


def test_progress_stays_out_of_a_file(made: Made, tmp_path: Path) -> None:
    out, err = on_a_terminal("aof", "export", "--resp", made.root, "-o", tmp_path / "x.resp")
    assert out == "" and "exporting" in err
