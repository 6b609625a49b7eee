"""Whether the packages of an extra are installed, before a command loads what needs them."""

from __future__ import annotations

from importlib.util import find_spec

from tidelog.tools.failed import Unable


def installed(what: str, *packages: str, extra: str) -> None:
    """Raises Unable, which names the packages that `what` lacks and the extra that has them."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise Unable(
            f"{what} needs {' and '.join(missing)}; install with: pip install 'tidelog[{extra}]'"
        )
