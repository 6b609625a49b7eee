"""Sizes as people read them."""

from __future__ import annotations


def size_text(size: int) -> str:
    """A number of bytes, in the largest unit in which it is at least 1."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
