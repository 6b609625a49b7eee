"""Sources: notice that a Python file below a directory has changed, for `tidelog worker --reload`."""

from __future__ import annotations

import os
from pathlib import Path

_LEFT_OUT = frozenset(("__pycache__", "site-packages", "node_modules"))


class Sources:
    """The Python files below a directory, without hidden folders and installed packages."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known = self._files()

    def changed(self) -> str | None:
        """A file that was changed, made or removed since the last call; None if there is none."""
        before, self._known = self._known, self._files()
        different = before.items() ^ self._known.items()
        return min((name for name, _ in different), default=None)

    def _files(self) -> dict[str, tuple[int, int]]:
        """name -> (time of the last change, size)"""
        found: dict[str, tuple[int, int]] = {}
        for folder, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if name[0] != "." and name not in _LEFT_OUT]
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        stat = os.stat(path)
                    except OSError:
                        continue  # removed meanwhile
                    found[os.path.relpath(path, self._root)] = stat.st_mtime_ns, stat.st_size
        return found
