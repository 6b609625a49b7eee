"""`rediss://` against a real `tidelog serve` whose certificate a private CA has signed, and which asks for one."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote

import pytest
import redis
from tests.server.access.test_tls import made, openssl
from tests.server.ports import free_port
from tests.server.test_guide import GUIDE, blocks
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.process import environment


class Files(TypedDict):
    tls_ca: Path | None
    tls_cert: Path
    tls_key: Path


class Served(NamedTuple):
    """A running server, and the files of its CA, of a client, and of another CA."""

    port: int
    ca: Path
    certificate: Path
    key: Path
    other: Path

    @property
    def url(self) -> str:
        return f"rediss://localhost:{self.port}"

    @property
    def files(self) -> Files:
        return Files(tls_ca=self.ca, tls_cert=self.certificate, tls_key=self.key)


def guided(folder: Path) -> None:
    """The CA and the certificates as the guide to the server makes them, in files of the names there."""
    (block,) = (block for block in blocks(GUIDE, "sh") if "keyCertSign" in block)
    openssl("version")
    subprocess.run(["sh", "-ec", block], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tls")
    guided(folder)
    ca, certificate, key = folder / "ca.crt", folder / "server.crt", folder / "server.key"
    other = Path(made(folder, "other").certificate)
    port = free_port()
    words = [
        *("serve", str(folder / "s"), "--port", "0", "--tls-port", str(port)),
        *("--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
        *("--tls-ca-cert-file", str(ca), "--tls-auth-clients", "yes"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *words], stdout=log, stderr=log, env=environment()
        )
    found = Served(port, ca, folder / "client.crt", folder / "client.key", other)

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        client = redis.Redis(
            *("localhost", port),
            ssl=True,
            ssl_ca_certs=str(ca),
            ssl_certfile=str(found.certificate),
            ssl_keyfile=str(found.key),
        )
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False
        finally:
            client.close()

    try:
        until(answers, "the server does not answer")
        yield found
    finally:
        process.terminate()
        process.wait()


def test_files_as_arguments(served: Served) -> None:
    with tidelog.connect(served.url, **served.files) as db:
        queue = db.queue("q")
        queue.put(1)
        job = queue.get(block=0)
        assert job is not None and job.ack()


def test_files_in_the_url(served: Served) -> None:
    names = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
    query = "&".join(
        f"{n}={quote(str(p))}" for n, p in zip(names, served.files.values(), strict=True)
    )
    with tidelog.connect(f"{served.url}/3?{query}") as db:
        db.set("k", "v")
    with tidelog.connect(served.url, **served.files) as db:
        assert db.db(3).get("k") == b"v"
    with tidelog.queue(f"{served.url}?{query}", "q", shared=True) as queue:
        assert queue.stats().depth == 0


def test_asyncio(served: Served) -> None:
    async def main() -> None:
        async with tidelog.aconnect(served.url, **served.files) as db:
            assert await db.ping()

    asyncio.run(main())


@pytest.mark.parametrize("ca", ("none", "another"))
def test_a_server_that_is_not_trusted_is_an_error_at_once(served: Served, ca: str) -> None:
    began = time.monotonic()
    given = None if ca == "none" else served.other
    with pytest.raises(tidelog.Unreachable, match="no valid certificate: .*tls_ca"):
        tidelog.connect(served.url, timeout=300, tls_ca=given)
    assert time.monotonic() - began < PATIENCE_S


def test_the_name_is_checked_unless_it_is_turned_off(served: Served) -> None:
    url = f"rediss://127.0.0.1:{served.port}"
    with pytest.raises(tidelog.Unreachable, match="no valid certificate: IP address mismatch"):
        tidelog.connect(url, **served.files)
    files = Files(tls_ca=None, tls_cert=served.certificate, tls_key=served.key)
    with tidelog.connect(f"{url}?ssl_cert_reqs=none", **files) as db:
        assert db.ping()


def test_a_client_without_a_certificate_is_refused(served: Served) -> None:
    def refused() -> object:
        with pytest.raises(tidelog.Unreachable) as caught:
            tidelog.connect(served.url, tls_ca=served.ca, timeout=0.5)
        return re.search("certificate.required|closed|reset", str(caught.value))

    until(refused, "no reason is given")  # where nothing is, a busy machine took the time


@pytest.mark.parametrize(
    ("url", "given", "words"),
    [
        (
            "rediss://h",
            {"tls_ca": "missing.pem"},
            "missing.pem holds no certificates: no such file",
        ),
        ("rediss://h", {"tls_ca": __file__}, "holds no certificates"),
        ("rediss://h", {"tls_cert": __file__}, "hold no certificate with its key"),
        ("rediss://h", {"tls_key": __file__}, "a TLS key belongs to a certificate"),
        ("redis://h", {"tls_ca": __file__}, "need the URL rediss://"),
        ("store", {"tls_ca": __file__}, "need the URL rediss://"),
        ("rediss://h?ssl_cert_reqs=maybe", {}, "must be required or none"),
        ("rediss://h?ssl_ca_cert=x", {}, "no option ssl_ca_cert"),
        ("redis://h?ssl_ca_certs=x", {}, "a URL of redis has no option"),
        ("unix:///x?ssl_ca_certs=x", {}, "a URL of unix has no option"),
        ("rediss+sentinel://h/orders?ssl_ca_certs=missing.pem", {}, "no such file"),
    ],
)
def test_wrong_files_and_options(url: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(tidelog.DataError, match=words):
        tidelog.connect(url, **given)
