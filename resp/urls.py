"""URLs of servers, as errors and reports show them: without user and password."""

from __future__ import annotations

import re
from typing import Final

SERVER: Final = re.compile(r"(?:rediss?|tidelog|unix)(?:\+sentinel)?:/")
# Text that stands before a password. Where a URL was taken for a path, it has lost one of two slashes. A password of a
# server may have signs that belong into no URL; other URLs may name a file with an @.
_SIGNS: Final = re.compile(rf"\b({SERVER.pattern}/?|[a-z][\w+.-]*:/{{1,2}}(?=[^\s/]*@))\S*@")


def shown(url: str) -> str:
    """The URL with `...` in the place of user and password; a text that is no URL, as it is."""
    scheme, mark, rest = url.partition("://")
    _, at, place = rest.rpartition("@")
    return f"{scheme}{mark}...@{place}" if mark and at else url


def without_passwords(line: str) -> str:
    """A line of text, in which URLs of servers show neither user nor password."""
    return _SIGNS.sub(r"\1...@", line)
