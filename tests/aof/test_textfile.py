"""Text files: any damage is refused, a newer format is named, and the lines come back as they were given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.aof.errors import Damage, DamagedFile, NewerFormat
from tidelog.aof.textfile import TextFile

PATH = Path("/db/NOTE")
NOTE = TextFile("tidelog note", 2, DamagedFile, "the file is no note", "Write another one")
LINES = "colour blau und grün\nsize 7\n"


def test_lines_come_back() -> None:
    data = NOTE.render(LINES)
    assert data.startswith(b"tidelog note\nformat 2\ncolour ") and data[-16:-9] == b"crc32c "
    assert NOTE.parse(PATH, data) == LINES
    assert NOTE.parse(PATH, NOTE.render("")) == ""
    assert NOTE.parse(PATH, NOTE._replace(format=1).render(LINES)) == LINES


def test_every_changed_byte_and_every_cut_is_refused_with_the_error_and_the_advice_of_the_file() -> (
    None
):
    data = NOTE.render(LINES)
    changed = [data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] for at in range(len(data))]
    for bad in changed + [data[:end] for end in range(len(data))]:
        with pytest.raises(DamagedFile, match="Write another one") as caught:
            NOTE.parse(PATH, bad)
        assert caught.value.reason.startswith(("the file is no note", "the content does not"))


def test_another_kind_of_text_file_is_refused() -> None:
    other = TextFile("tidelog letter", 1)
    assert other.is_named_by(other.render(LINES)) and not NOTE.is_named_by(other.render(LINES))
    with pytest.raises(DamagedFile, match="no note"):
        NOTE.parse(PATH, other.render(LINES))
    with pytest.raises(Damage, match="incomplete"):
        other.parse(PATH, NOTE.render(LINES))


def test_a_newer_format_is_named_when_its_checksum_is_right() -> None:
    newer = NOTE._replace(format=3).render("mood good\n")
    with pytest.raises(NewerFormat, match="format version 3"):
        NOTE.parse(PATH, newer)
    with pytest.raises(DamagedFile, match="checksum"):
        NOTE.parse(PATH, newer.replace(b"good", b"food"))
