"""Certificates: what the options make of them, what is said when they are wrong, and how they are renewed.

The certificates are made with the command `openssl`, which is a package of the system.
"""

from __future__ import annotations

import gc
import logging
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.server.conftest import Start
from tests.server.dial import dial, hang_up  # noqa: F401
from tests.server.ports import free_port
from tests.until import until

from tidelog.engine.errors import CommandError
from tidelog.server import listeners, reserve
from tidelog.server.config.config import Config, ConfigError
from tidelog.server.monitoring.logs import VERBOSE
from tidelog.server.tls import context


class Files(NamedTuple):
    """A certificate and its key."""

    certificate: str
    key: str


def openssl(*args: str) -> None:
    if shutil.which("openssl") is None:
        pytest.fail("openssl is not installed: apt-get install openssl", pytrace=False)
    subprocess.run(["openssl", *args], check=True, capture_output=True, timeout=60)


def made(folder: Path, name: str, password: str = "") -> Files:
    """A certificate for localhost, signed by its own key."""
    files = Files(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-keyout", files.key, "-out", files.certificate, "-days", "2"),
        *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        *(["-passout", f"pass:{password}"] if password else ["-noenc"]),
    )
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Files:
    return made(folder, "server")


@pytest.fixture(scope="module")
def other(folder: Path) -> Files:
    return made(folder, "other")


def configured(files: Files | None, **options: str) -> Config:
    config = Config()
    if files is not None:
        options = {"tls_cert_file": files.certificate, "tls_key_file": files.key, **options}
    for name, text in options.items():
        config.take(name.replace("_", "-"), text, "")
    return config


def client(trusted: Files | None, own: Files | None = None) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if trusted is not None:
        found.load_verify_locations(trusted.certificate)
    if own is not None:
        found.load_cert_chain(*own)
    return found


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection that is set up, in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    )
    done: set[int] = set()
    for _ in range(10):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass
        if len(done) == 2:
            ends[1].write(b"x")
            # under TLS 1.3 the server says only now what it thinks of the client
            assert ends[0].read(1) == b"x"
            return ends
    raise AssertionError("no end of it")


def test_a_connection(ours: Files, other: Files) -> None:
    server = context(configured(ours, tls_auth_clients="no"))
    ends = shake_hands(server, client(ours))
    assert ends[0].version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client(other))


def test_clients_with_certificates(ours: Files, other: Files) -> None:
    must = context(configured(ours, tls_ca_cert_file=other.certificate))
    shake_hands(must, client(ours, own=other))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(must, client(ours))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shake_hands(must, client(ours, own=ours))
    may = context(configured(ours, tls_ca_cert_file=other.certificate, tls_auth_clients="optional"))
    shake_hands(may, client(ours))
    shake_hands(may, client(ours, own=other))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shake_hands(may, client(ours, own=ours))


def test_a_folder_of_authorities(ours: Files, other: Files, tmp_path: Path) -> None:
    shutil.copy(other.certificate, tmp_path)
    openssl("rehash", str(tmp_path))
    must = context(configured(ours, tls_ca_cert_dir=str(tmp_path)))
    shake_hands(must, client(ours, own=other))
    with pytest.raises(ssl.SSLError):
        shake_hands(must, client(ours, own=ours))


def test_versions_and_ciphers(ours: Files) -> None:
    cipher = "ECDHE-ECDSA-AES256-GCM-SHA384"
    only = configured(ours, tls_auth_clients="no", tls_protocols="TLSv1.2", tls_ciphers=cipher)
    ends = shake_hands(context(only), client(ours))
    used = ends[0].cipher()
    assert (ends[0].version(), used and used[0]) == ("TLSv1.2", cipher)
    old = client(ours)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(context(configured(ours, tls_auth_clients="no", tls_protocols="TLSv1.3")), old)
    strict = configured(ours, tls_auth_clients="no", tls_prefer_server_ciphers="yes")
    assert context(strict).options & ssl.OP_CIPHER_SERVER_PREFERENCE
    lax = context(configured(ours, tls_auth_clients="no"))
    assert not lax.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_a_key_with_a_password(folder: Path) -> None:
    locked = made(folder, "locked", password="open sesame")
    found = context(configured(locked, tls_auth_clients="no", tls_key_file_pass="open sesame"))
    shake_hands(found, client(locked))
    with pytest.raises(ConfigError) as caught:
        context(configured(locked, tls_auth_clients="no"))
    assert (
        str(caught.value)
        == f"tls-key-file {locked.key} is encrypted: set tls-key-file-pass to its password"
    )
    with pytest.raises(ConfigError) as caught:
        context(configured(locked, tls_auth_clients="no", tls_key_file_pass="please"))
    assert (
        str(caught.value) == f"tls-key-file-pass is not the password of tls-key-file {locked.key}"
    )


def test_what_is_wrong_with_the_files(ours: Files, other: Files, tmp_path: Path) -> None:
    missing, garbage, empty = tmp_path / "missing", tmp_path / "garbage", tmp_path / "empty"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    empty.touch()
    for options, text in (
        ({}, "tls-port needs tls-cert-file"),
        ({"tls_cert_file": ours.certificate}, "tls-port needs tls-key-file"),
        (
            {"tls_cert_file": str(missing), "tls_key_file": ours.key},
            f"tls-cert-file {missing}: No such file or directory",
        ),
        (
            {"tls_cert_file": ours.certificate, "tls_key_file": str(missing)},
            f"tls-key-file {missing}: No such file or directory",
        ),
        (
            {"tls_cert_file": ours.certificate, "tls_key_file": other.key},
            f"tls-key-file {other.key} is not the key of the certificate in tls-cert-file {ours.certificate}",
        ),
        (
            {"tls_cert_file": str(empty), "tls_key_file": ours.key},
            f"tls-cert-file {empty} contains no PEM certificate",
        ),
        (
            {"tls_cert_file": str(garbage), "tls_key_file": ours.key},
            f"tls-cert-file {garbage} contains no PEM certificate",
        ),
        (
            {"tls_cert_file": ours.certificate, "tls_key_file": str(empty)},
            f"tls-key-file {empty} contains no PEM private key that OpenSSL accepts",
        ),
        (
            {**files(ours), "tls_auth_clients": "yes"},
            "tls-auth-clients is yes, but there are no CA certificates to verify clients against: set "
            "tls-ca-cert-file or tls-ca-cert-dir, or set tls-auth-clients to no",
        ),
        (
            {**files(ours), "tls_ca_cert_file": str(missing)},
            f"tls-ca-cert-file {missing}: No such file or directory",
        ),
        (
            {**files(ours), "tls_ca_cert_file": str(empty)},
            f"tls-ca-cert-file {empty} contains no PEM certificate",
        ),
        (
            {**files(ours), "tls_ca_cert_dir": str(missing)},
            f"tls-ca-cert-dir {missing}: No such file or directory",
        ),
        (
            {**files(ours), "tls_auth_clients": "no", "tls_ciphers": "rot13"},
            "tls-ciphers: OpenSSL knows none of the ciphers rot13",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            context(configured(None, **options))
        assert str(caught.value).startswith(text)


def files(found: Files) -> dict[str, str]:
    return {"tls_cert_file": found.certificate, "tls_key_file": found.key}


def test_a_renewed_certificate(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = made(folder, "old"), made(folder, "new")
    config = configured(old, tls_auth_clients="no")
    server = context(config)
    shake_hands(server, client(old))

    # Other files, both at once.
    config.set([(b"tls-cert-file", new.certificate.encode()), (b"tls-key-file", new.key.encode())])
    shake_hands(server, client(new))

    # Half of it is refused, and nothing has changed.
    with caplog.at_level(logging.WARNING, "tidelog"), pytest.raises(CommandError) as caught:
        config.set([(b"tls-cert-file", old.certificate.encode())])
    assert caught.value.line == (
        b"ERR CONFIG SET failed (possibly related to argument 'tls-cert-file') - "
        b"Unable to update TLS configuration. Check server logs."
    )
    assert "is not the key of the certificate" in caplog.text
    assert config["tls-cert-file"] == new.certificate
    shake_hands(server, client(new))

    # The same names, with something else in the files.
    newest = made(folder, "new")
    config.set([(b"tls-cert-file", new.certificate.encode())])
    shake_hands(server, client(newest))


# --- connections


def ask(trusted: Files, port: int, line: bytes = b"PING\r\n") -> bytes:
    """The reply to a client that connects and sends this."""
    with socket.create_connection(("127.0.0.1", port), 60) as link:
        with client(trusted).wrap_socket(link, server_hostname="localhost") as secure:
            secure.sendall(line)
            return secure.recv(100)


def test_who_stalls_in_the_handshake_takes_no_more_than_clients_may(
    start: Start, ours: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the log could not open its next file, by the doing of one who has not even said a word."""
    monkeypatch.setattr(listeners, "HANDSHAKE_S", 60.0)
    monkeypatch.setattr(reserve, "TRIAL_S", 0.01)
    port = free_port()
    running = start(tls_port=port, tls_auth_clients="no", maxclients=3, **files(ours))
    most = 3 + reserve.SEATS + listeners.HANDSHAKES_SPARE
    handshakes, stats = running.server.listeners.handshakes, running.server.stats
    with caplog.at_level(VERBOSE, "tidelog.server"):
        silent = [dial(port) for _ in range(20)]
        until(lambda: stats.connections_received == 20 - most)
        assert len(handshakes) == most
        assert stats.rejected_connections == stats.connections_received
        assert dial(running.port).rest() == b"-ERR max number of clients reached\r\n"
        for client in silent:
            client.close()
        until(lambda: not len(handshakes))
        monkeypatch.setattr(listeners, "HANDSHAKE_S", 0.2)
        dial(port)
        until(lambda: "taking longer than 0.2 seconds" in caplog.text)
        monkeypatch.setattr(listeners, "HANDSHAKE_S", 60.0)
        assert ask(ours, port) == b"+PONG\r\n"
        plain = dial(port)
        plain.raw(b"*1\r\n$4\r\nPING\r\n")
        plain.rest()
        until(lambda: "WRONG_VERSION_NUMBER" in caplog.text)
    assert "TLS handshake with 127.0.0.1:" in caplog.text


def test_who_is_one_too_many_is_told_so(start: Start, ours: Files) -> None:
    port = free_port()
    running = start(tls_port=port, tls_auth_clients="no", maxclients=1, **files(ours))
    with running.client() as one:
        one.ping()
        assert ask(ours, port, b"GET k\r\n") == b"-ERR max number of clients reached\r\n"


def test_a_connection_that_is_gone_keeps_nothing_of_its_tls(start: Start, ours: Files) -> None:
    """Tens of kilobytes each, and the collector comes seldom."""
    port = free_port()
    running = start(tls_port=port, tls_auth_clients="no", **files(ours))
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            assert ask(ours, port) == b"+PONG\r\n"
        until(lambda: not running.server.sessions)
        until(lambda: not any(isinstance(each, ssl.SSLObject) for each in gc.get_objects()))
    finally:
        gc.enable()
