"""Exemptions: whether something that needs a real file system to be mounted may be left out here.

It may not where the machine has what it needs, and not in a CI (CI=true) that does not say TIDELOG_NO_MOUNTS=1.
Elsewhere it is left out, and the reason is printed. Calls of a process can be made to fail wherever a C compiler is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import pytest
from tests.exempted import PREFIX

from tidelog.crash.calls import CALLS
from tidelog.crash.full import FULL
from tidelog.crash.preload.library import COMPILERS
from tidelog.tools.crash.blocks import BLOCKS, RECORDED, XFS_BLOCKS
from tidelog.tools.crash.shutdowns import KINDS, MACHINE, XFS

SMALL_DISK: Final = "small disk"  # a tmpfs (tests/small_disk.py)
NEEDS: Final = {
    MACHINE: ("/dev/loop-control",),
    XFS: ("/dev/loop-control",),
    BLOCKS: ("/dev/loop-control", "/dev/fuse"),
    XFS_BLOCKS: ("/dev/loop-control", "/dev/fuse"),
    SMALL_DISK: (),
    FULL: (),
}
NO_MOUNTS: Final = "TIDELOG_NO_MOUNTS"
SYS_ADMIN: Final = 21  # the number of the capability, without which root may not mount


def must_run(layer: str, root: Path = Path("/")) -> bool:
    """Whether this machine has what a layer needs: the right to mount, the file system, and the devices.

    A container may call its user root, and show devices, and refuse both.
    """
    if layer == CALLS:
        return any(map(shutil.which, COMPILERS))
    status = dict(
        line.split(":", 1) for line in (root / "proc/self/status").read_text().splitlines()
    )
    if not int(status["CapEff"], 16) >> SYS_ADMIN & 1:
        return False
    kind = {**KINDS, **RECORDED}.get(layer)
    if kind is not None and kind.name not in (root / "proc/filesystems").read_text().split():
        return False
    return all(_opens(root / device.lstrip("/")) for device in NEEDS[layer])


def demanded(layer: str, root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a layer must not be left out here."""
    in_ci = environ.get("CI", "").lower() in ("1", "true") and environ.get(NO_MOUNTS) != "1"
    return in_ci or must_run(layer, root)


def exempt(
    layer: str, reason: str, root: Path = Path("/"), environ: Mapping[str, str] = os.environ
) -> NoReturn:
    """End a test that cannot mount what it needs: it fails where that is demanded, and is skipped elsewhere."""
    if demanded(layer, root, environ):
        pytest.fail(
            f"{layer}: not run, although this machine must: {reason} ({NO_MOUNTS}=1 says that a CI cannot)"
        )
    pytest.skip(f"{PREFIX}{layer}: not run: {reason}")


def _opens(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError:
        return False
    return True


def verdict(
    not_run: dict[str, str], root: Path = Path("/"), environ: Mapping[str, str] = os.environ
) -> tuple[list[str], bool]:
    """(a line for each layer that was not run, whether one of them should have been)."""
    wrong = {layer for layer in not_run if demanded(layer, root, environ)}
    lines = [
        f"{layer}: not run, although this machine must: {reason} ({NO_MOUNTS}=1 says that a CI cannot)"
        if layer in wrong
        else f"{layer}: not run: {reason}"
        for layer, reason in not_run.items()
    ]
    return lines, bool(wrong)
