"""REPLICA: the file that says whether a store leads or follows."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tidelog.aof.errors import Damage, NewerFormat
from tidelog.disk.real import RealDisk
from tidelog.engine.crc32c import crc32c_of
from tidelog.store import role
from tidelog.store.role import ALONE, Role

ID = "0123456789abcdef0123456789abcdef"
FOLLOWER = Role("follower", ID, "10.0.0.7", 6379, 3, "told by REPLICAOF")
TEXT = (
    b"tidelog replica\nformat 1\nrole follower\nid 0123456789abcdef0123456789abcdef\nleader 10.0.0.7 6379\n"
    b"generation 3\nreason told by REPLICAOF\n"
)
HEIR = "fedcba9876543210fedcba9876543210"
HANDING_OVER = Role(
    "handing over", ID, "10.0.0.8", 6379, 3, "told a follower to lead, by FAILOVER", HEIR
)
HANDING_OVER_TEXT = (
    b"tidelog replica\nformat 2\nrole handing over\nid 0123456789abcdef0123456789abcdef\n"
    b"heir 10.0.0.8 6379 fedcba9876543210fedcba9876543210\n"
    b"generation 3\nreason told a follower to lead, by FAILOVER\n"
)


def with_crc(text: bytes) -> bytes:
    return text + b"crc32c %08x\n" % crc32c_of(text)


@pytest.mark.parametrize(("given", "text"), [(FOLLOWER, TEXT), (HANDING_OVER, HANDING_OVER_TEXT)])
def test_the_bytes_are_those_of_the_format_document(given: Role, text: bytes) -> None:
    assert role.render(given) == with_crc(text)
    document = (Path(__file__).parents[2] / "docs" / "FORMAT.md").read_text()
    lines = text.decode().splitlines()
    assert "\n".join(f"    {line}" for line in lines) in document


@pytest.mark.parametrize(
    "given",
    [
        FOLLOWER,
        HANDING_OVER,
        HANDING_OVER._replace(host="::1", reason=""),
        Role("leader", ID, "", 0, 7, "promoted, after following 10.0.0.7:6379"),
        Role("follower", ID, "::1", 1, 0, ""),
        Role("follower", ID, "a" * 255, 65535, (1 << 32) - 1, "für später"),
    ],
)
def test_what_is_published_is_read(tmp_path: Path, given: Role) -> None:
    disk = RealDisk()
    assert role.read(disk, tmp_path) == ALONE
    role.publish(disk, tmp_path, given)
    assert role.read(disk, tmp_path) == given


def test_a_reason_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    told = role.parse(tmp_path, role.render(FOLLOWER._replace(reason="a\nb\r\n c" + "x" * 5000)))
    assert told.reason.startswith("a b c") and len(told.reason) == role.REASON_CHARS_MAX


@pytest.mark.parametrize("at", range(0, len(with_crc(TEXT))))
def test_every_damaged_byte_is_refused(tmp_path: Path, at: int) -> None:
    data = bytearray(with_crc(TEXT))
    data[at] ^= 0x10
    with pytest.raises((Damage, NewerFormat)):
        role.parse(tmp_path, bytes(data))


@pytest.mark.parametrize("length", range(0, len(with_crc(TEXT)), 7))
def test_every_cut_file_is_refused(tmp_path: Path, length: int) -> None:
    with pytest.raises(Damage, match="incomplete"):
        role.parse(tmp_path, with_crc(TEXT)[:length])


# fmt: off
@pytest.mark.parametrize("text", [
    TEXT.replace(b"role follower", b"role leader"),
    TEXT.replace(b"leader 10.0.0.7 6379\n", b""),
    TEXT.replace(b"role follower", b"role onlooker"),
    TEXT.replace(ID.encode(), b"12"),
    TEXT.replace(b"generation 3", b"generation -3"),
    TEXT.replace(b"leader 10.0.0.7 6379", b"leader 10.0.0.7 6379 " + HEIR.encode()),
    TEXT.replace(b"role follower", b"role handing over"),
    HANDING_OVER_TEXT.replace(b"role handing over", b"role follower"),
    HANDING_OVER_TEXT.replace(b"role handing over", b"role leader"),
    HANDING_OVER_TEXT.replace(b" " + HEIR.encode(), b""),
    HANDING_OVER_TEXT.replace(b"heir", b"leader"),
])
# fmt: on
def test_lines_that_contradict_each_other_are_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(Damage, match="do not state a role"):
        role.parse(tmp_path, with_crc(text))


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    newer = TEXT.replace(b"format 1", b"format 3").replace(b"role follower", b"role x\nmore 1")
    with pytest.raises(NewerFormat, match="format version 3"):
        role.parse(tmp_path, with_crc(newer))


def test_a_damaged_file_stops_the_open_and_says_what_to_do(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xadd("s", {"a": "1"})
    path = tmp_path / "s" / "REPLICA"
    path.write_bytes(b"role leader\n")
    with pytest.raises(tidelog.StoreDamaged, match="move the file away") as caught:
        tidelog.open(tmp_path / "s")
    assert str(path) in str(caught.value)
    with tidelog.open(tmp_path / "s", read_only=True) as db:
        assert db.xlen("s") == 1
    path.unlink()
    with tidelog.open(tmp_path / "s") as db:
        assert db.xlen("s") == 1 and db.role() == ALONE


def test_a_link_in_its_place_stops_the_open(tmp_path: Path) -> None:
    tidelog.open(tmp_path / "s").close()
    (tmp_path / "s" / "REPLICA").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(tidelog.CannotOpen, match="REPLICA"):
        tidelog.open(tmp_path / "s")


# fmt: off
@pytest.mark.parametrize(("host", "port"), [
    ("", 1), ("a b", 1), ("a\nb", 1), ("a" * 256, 1), ("ü", 1), ("a", 0), ("a", 65536), ("a", "1"),
])
# fmt: on
def test_addresses_that_are_none(host: str, port: int) -> None:
    with pytest.raises(ValueError, match="is not"):
        role.check_address(host, port)
