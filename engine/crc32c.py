"""CRC-32C (Castagnoli), the checksum of everything tidelog writes.

There are three implementations of the same polynomial, so the files do not depend on which one is installed:

    google-crc32c            hardware instruction: 4 times faster on small frames, 50 on blocks
    crcmod, C extension      table driven; the dependency that always installs
    crcmod, pure Python      hundreds of times slower, but correct; warns with a RuntimeWarning

crc32c("123456789") is 0xE3069283. The checksum of no bytes is 0.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Final

import crcmod.predefined  # type: ignore[import-untyped]

_crcmod: Final[Callable[[bytes, int], int]] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
# `_usingExtension` is in the submodule `crcmod.crcmod`. But the attribute `crcmod` of the package is the package
# itself, so get the submodule from sys.modules.
_CRCMOD_IN_C: Final = bool(getattr(sys.modules["crcmod.crcmod"], "_usingExtension", False))


def _crcmod_of(data: bytes) -> int:
    return _crcmod(data, 0)


def _crcmod_after(value: int, data: bytes) -> int:
    return _crcmod(data, value)


def _choose() -> tuple[str, Callable[[bytes], int], Callable[[int, bytes], int]]:
    """Pick the fastest installed implementation. Returns its name, `crc32c_of` and `crc32c_after`."""
    try:
        import google_crc32c
    except ImportError:
        google_crc32c = None  # type: ignore[assignment]
    if google_crc32c is not None and google_crc32c.implementation == "c":
        return "google-crc32c", google_crc32c.value, google_crc32c.extend
    if _CRCMOD_IN_C:
        return "crcmod", _crcmod_of, _crcmod_after
    warnings.warn(
        "CRC-32C runs in pure Python, hundreds of times slower than it should: neither "
        "google-crc32c nor the C extension of crcmod is installed. Install google-crc32c, or "
        "reinstall crcmod where a C compiler and the Python headers are present.",
        RuntimeWarning,
        stacklevel=2,
    )
    return "crcmod (pure Python)", _crcmod_of, _crcmod_after


# With google-crc32c, `crc32c_of(data)` and `crc32c_after(value, data)` are its C functions, not wrappers in Python. The
# log computes two checksums per frame, so this saves two Python calls per frame.
IMPLEMENTATION, crc32c_of, crc32c_after = _choose()


def crc32c(data: bytes, value: int = 0) -> int:
    """CRC-32C of `data`, continued from `value`, the checksum of the bytes before it.

    Takes only `bytes`, since google-crc32c refuses bytearray and memoryview.
    """
    return crc32c_after(value, data)
