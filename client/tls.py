"""TLS: how a client checks a server, and signs in with a certificate of its own.

The query of a URL has redis-py's names:

    rediss://host:6380/0?ssl_ca_certs=ca.pem&ssl_certfile=me.pem&ssl_keyfile=me.key&ssl_cert_reqs=required
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.store.errors import DataError

CHECKED: Final = "required"
UNCHECKED: Final = "none"
# The name in the query of a URL, and the argument of `connect` that says the same; None if there is none.
FILES: Final = {"ssl_ca_certs": "ca", "ssl_certfile": "certificate", "ssl_keyfile": "key"}


@dataclass(frozen=True)
class Tls:
    """The files of a TLS connection; empty = none.

    ca            certificates that sign those of servers; without it those of the system
    certificate   of this client, for a server that asks for one
    key           of the certificate; without it, it is in the same file
    checks        whether the server must prove its name; without that, anybody on the way can read and answer
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    checks: bool = True

    def context(self) -> ssl.SSLContext:
        """For a connection. Raises DataError."""
        try:
            found = ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            raise DataError(
                f"the TLS file {self.ca} holds no certificates: {_why(error)}"
            ) from error
        if not self.checks:
            found.check_hostname = False
            found.verify_mode = ssl.CERT_NONE
        if self.certificate:
            try:
                found.load_cert_chain(self.certificate, self.key or None)
            except OSError as error:
                files = self.certificate + (f" and {self.key}" if self.key else "")
                raise DataError(
                    f"the TLS files {files} hold no certificate with its key: {_why(error)}"
                ) from error
        elif self.key:
            raise DataError("a TLS key belongs to a certificate: give its file, too")
        return found


def of_query(name: str, query: Mapping[str, str]) -> Tls:
    """The TLS options in the query of a URL. Raises DataError."""
    checks = query.get("ssl_cert_reqs", CHECKED)
    if checks not in (CHECKED, UNCHECKED):
        raise DataError(f"{name!r}: ssl_cert_reqs must be {CHECKED} or {UNCHECKED}, not {checks!r}")
    given = {field: query[option] for option, field in FILES.items() if option in query}
    return Tls(**given, checks=checks == CHECKED)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
