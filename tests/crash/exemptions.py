"""Exemptions: whether a layer that takes the power of a real file system may be left out here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tidelog.tools.crash.blocks import BLOCKS
from tidelog.tools.crash.shutdowns import KINDS, MACHINE, XFS

NEEDS: Final = {
    MACHINE: ("/dev/loop-control",),
    XFS: ("/dev/loop-control",),
    BLOCKS: ("/dev/loop-control", "/dev/fuse"),
}
SYS_ADMIN: Final = 21  # the number of the capability, without which root may not mount


def must_run(layer: str, root: Path = Path("/")) -> bool:
    """Whether this machine has what a layer needs: the right to mount, the file system, and the devices.

    A container may call its user root, and show devices, and refuse both.
    """
    status = dict(
        line.split(":", 1) for line in (root / "proc/self/status").read_text().splitlines()
    )
    if not int(status["CapEff"], 16) >> SYS_ADMIN & 1:
        return False
    if layer in KINDS and KINDS[layer].name not in (root / "proc/filesystems").read_text().split():
        return False
    return all(_opens(root / device.lstrip("/")) for device in NEEDS[layer])


def _opens(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError:
        return False
    return True


def verdict(not_run: dict[str, str], root: Path = Path("/")) -> tuple[list[str], bool]:
    """(a line for each layer that was not run, whether one of them should have been)."""
    wrong = {layer for layer in not_run if must_run(layer, root)}
    lines = [
        f"{layer}: not run, although this machine may mount and has the devices: {reason}"
        if layer in wrong
        else f"{layer}: not run: {reason}"
        for layer, reason in not_run.items()
    ]
    return lines, bool(wrong)
