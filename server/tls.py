"""TLS: makes an SSLContext from the options, with precise errors for the files that they name.

CONFIG SET tls-cert-file loads a renewed certificate, even under the same file name, for new connections. No restart is
needed.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any, Final

from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.server.config.config import Config, ConfigError

# As in Redis, the error of CONFIG SET gives no reason; the log does.
NOT_UPDATED: Final = "Unable to update TLS configuration. Check server logs."
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_logger = logging.getLogger("tidelog.server")


def context(config: Config) -> ssl.SSLContext:
    """Return the context to listen with. CONFIG SET of the certificate and key updates it. Raises ConfigError."""
    made = _context(config)

    def renew(value: Any) -> None:
        try:
            # tests the new settings: if anything is wrong, it raises before `made` is changed
            _context(config)
            _load_certificate(made, config)
        except ConfigError as error:
            _logger.warning("the certificate was not replaced: %s", error)
            raise ValueError(NOT_UPDATED) from error

    for name in ("tls-cert-file", "tls-key-file", "tls-key-file-pass"):
        config.on(name, renew)
    return made


def to_leader(config: Config) -> ssl.SSLContext | None:
    """The context for the link to a leader; None without `tls-replication`. Raises ConfigError.

    The leader's certificate is verified, its host name too. The certificate of this server is shown if it has one.
    """
    if not config["tls-replication"]:
        return None
    made = ssl.create_default_context()
    file, folder = config["tls-ca-cert-file"], config["tls-ca-cert-dir"]
    if file:
        _must_be_readable("tls-ca-cert-file", file)
    if file or folder:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            made.load_verify_locations(file or None, folder or None)
        except ssl.SSLError as error:
            raise ConfigError(f"tls-ca-cert-file {file} contains no PEM certificate") from error
    if config["tls-cert-file"]:
        _load_certificate(made, config)
    return made


def _context(config: Config) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    versions = [_VERSIONS[word] for word in config["tls-protocols"].split()]
    if versions:
        made.minimum_version, made.maximum_version = min(versions), max(versions)
    if config["tls-ciphers"]:
        try:
            made.set_ciphers(config["tls-ciphers"])
        except ssl.SSLError:
            raise ConfigError(
                f"tls-ciphers: OpenSSL knows none of the ciphers {config['tls-ciphers']}"
            ) from None
    if config["tls-prefer-server-ciphers"]:
        made.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        made.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_certificate(made, config)
    _load_authorities(made, config)
    return made


def _load_certificate(made: ssl.SSLContext, config: Config) -> None:
    certificate, key = config["tls-cert-file"], config["tls-key-file"]
    for name, path in (("tls-cert-file", certificate), ("tls-key-file", key)):
        if not path:
            raise ConfigError(f"tls-port needs {name}")
        _must_be_readable(name, path)
    password: str = config["tls-key-file-pass"]
    try:
        # Always pass a password. Without one, OpenSSL would ask for it on the terminal.
        made.load_cert_chain(certificate, key, lambda: password)
    except ssl.SSLError as error:
        raise ConfigError(_reason(error, certificate, key, bool(password))) from error


def _reason(error: ssl.SSLError, certificate: str, key: str, with_password: bool) -> str:
    if error.reason == "KEY_VALUES_MISMATCH" or error.reason == "KEY_TYPE_MISMATCH":
        return (
            f"tls-key-file {key} is not the key of the certificate in tls-cert-file {certificate}"
        )
    if not _is_certificate(certificate):
        return f"tls-cert-file {certificate} contains no PEM certificate"
    if b"ENCRYPTED" in recipe.read(RealDisk(), Path(key)):  # OpenSSL has no single reason for this
        if with_password:
            return f"tls-key-file-pass is not the password of tls-key-file {key}"
        return f"tls-key-file {key} is encrypted: set tls-key-file-pass to its password"
    return f"tls-key-file {key} contains no PEM private key that OpenSSL accepts: {error.reason or error}"


def _is_certificate(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


def _load_authorities(made: ssl.SSLContext, config: Config) -> None:
    file, folder = config["tls-ca-cert-file"], config["tls-ca-cert-dir"]
    asked: str = config["tls-auth-clients"]
    made.verify_mode = {
        "no": ssl.CERT_NONE,
        "optional": ssl.CERT_OPTIONAL,
        "yes": ssl.CERT_REQUIRED,
    }[asked]
    if not file and not folder:
        if asked == "no":
            return
        raise ConfigError(
            f"tls-auth-clients is {asked}, but there are no CA certificates to verify clients against: set "
            "tls-ca-cert-file or tls-ca-cert-dir, or set tls-auth-clients to no"
        )
    if file:
        _must_be_readable("tls-ca-cert-file", file)
    if folder and not RealDisk().exists(Path(folder)):
        raise ConfigError(f"tls-ca-cert-dir {folder}: No such file or directory")
    try:
        made.load_verify_locations(file or None, folder or None)
    except ssl.SSLError as error:
        raise ConfigError(f"tls-ca-cert-file {file} contains no PEM certificate") from error


def _must_be_readable(name: str, path: str) -> None:
    """Raise ConfigError naming an unreadable file, because OpenSSL's errors do not name it."""
    try:
        RealDisk().open(Path(path)).close()
    except OSError as error:
        raise ConfigError(f"{name} {path}: {error.strerror or error}") from error
