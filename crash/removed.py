"""Removed: the data that an open took out of the files of a store and kept nowhere."""

from __future__ import annotations

from typing import Final

from tidelog.aof.identity import AOF, QUARANTINE
from tidelog.crash.served import STORE
from tidelog.crash.trace import Tree

# A store may change these files at an open: they hold no data, or say again what other files say.
FREE: Final = ("LOCK", "spare", "lock.mdb", "DURABLE", "checked")


def deletion(before: Tree, after: Tree, opened: bool) -> str:
    """The first file whose content an open removed, in words; "" if there is none.

    An open that succeeds may cut an unfinished end from the log, if a copy of it is in quarantine/, perhaps
    of an open that lost power behind the copy.
    """
    aside = [
        content or b""
        for path, content in after.items()
        if path.startswith(f"{STORE}/{QUARANTINE}/")
    ]
    for path, content in before.items():
        now = after.get(path)
        # A file of zeros holds no data. A blank data.mdb is made anew, as after a power cut during its creation.
        if not content or not content.strip(b"\0") or now == content or path.endswith(FREE):
            continue
        if not opened:
            return f"the open failed, and {'changed' if path in after else 'removed'} {path}"
        if now is not None and now.startswith(content):
            continue  # it became longer, as a data.mdb that was cut inside its last page
        if path.startswith(f"{STORE}/{AOF}/"):
            same = next(
                (i for i, (a, b) in enumerate(zip(content, now or b"", strict=False)) if a != b),
                min(len(content), len(now or b"")),
            )
            cut = content[same:].rstrip(b"\0")
            if not cut or any(cut in each for each in aside):
                continue
        return f"{path} was {'changed' if path in after else 'removed'}"
    return ""
