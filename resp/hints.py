"""Hints: why there is no connection to a server, in words that say what to do.

One side may speak TLS and the other not: then a server hangs up, or both wait.
"""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple


class Hints(NamedTuple):
    """The advice to one kind of client.

    tls      to speak TLS
    plain    not to speak it
    ca       to trust another certificate
    """

    tls: str
    plain: str
    ca: str


URL: Final = Hints(
    "use rediss:// in the URL",
    "use redis:// in the URL",
    "name its file: ?ssl_ca_certs=FILE in the URL, or tls_ca",
)
CLOSED: Final = "closed the connection"
LINK: Final = Hints(
    "set `tls-replication` to yes (of `tidelog.follow`: `tls`)",
    "set `tls-replication` to no (of `tidelog.follow`: leave `tls` out)",
    "name its file in `tls-ca-cert-file` (of `tidelog.follow`: give a context as `tls`)",
)
# Of TLS to a side that answers in the clear, by versions of OpenSSL.
_NO_TLS: Final = frozenset(
    ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
)


def closed(hints: Hints | None, *, tls: bool) -> str:
    """The words for a server that has hung up before it answered. `hints`: None if it is no port of TCP."""
    if hints is None or tls:
        return CLOSED
    return f"{CLOSED} before it answered; if that port is for TLS, {hints.tls}"


def reason(error: Exception, hints: Hints, *, tls: bool) -> str:
    """Why no connection was made. `tls`: it was to use TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"it has no valid certificate: {error.verify_message}. If a CA of your own has signed it, {hints.ca}"
    late = isinstance(error, TimeoutError)
    if tls and (late or (isinstance(error, ssl.SSLError) and error.reason in _NO_TLS)):
        said = "no answer in time" if late else "it answers without TLS"
        return f"{said}; if that port is not for TLS, {hints.plain}"
    if late:
        return "no answer in time"
    return (getattr(error, "strerror", None) or str(error)).lower()
