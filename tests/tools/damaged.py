"""Damage of a log, made by hand."""

from __future__ import annotations

from tests.tools.made import Made


def promised_frame(made: Made) -> None:
    made.flip(made.offsets[-1] + 3)
    made.promise(made.lsn - 1, incarnation=0xB2)


def missing_last(made: Made) -> None:
    made.promise(made.lsn - 1, incarnation=0xB2)
    made.path().unlink()


def header(made: Made) -> None:
    made.flip(20)


def store_file(made: Made) -> None:
    path = made.root / "STORE"
    path.write_bytes(path.read_bytes().replace(b"uuid 0", b"uuid 1"))
