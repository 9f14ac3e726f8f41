"""A self-signed certificate for the broker's TLS port, made on first use."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import tempfile
import threading
from pathlib import Path

from pairbus.names import write_atomically

_LIFETIME = dt.timedelta(days=825)  # the longest that common clients accept


def server_context(cert_file: Path) -> ssl.SSLContext:
    """Return a TLS server context for the PEM file that `make_certificate` wrote."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert_file)
    return context


def ensure_certificate(folder: Path, hosts: list[str]) -> Path:
    """Return the PEM file (key and certificate) in `folder`; make one if it is missing or old.

    The certificate alone, which clients may trust, is beside it in `cert.pem`.
    """
    pem = folder / "tls.pem"
    if not pem.exists() or not _is_usable(pem, hosts):
        key, certificate = make_certificate(hosts)
        write_atomically(folder / "cert.pem", certificate, mode=0o600)
        write_atomically(pem, key + certificate, mode=0o600)
    return pem


class Certificate:
    """The broker's certificate, made on first use: most clients do not use TLS.

    Args:
        folder: The folder of its files; None: a temporary folder, until `close`.
        host: The address that the broker listens on.
    """

    def __init__(self, folder: Path | None, host: str) -> None:
        self._folder = folder
        self._host = host
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._pem: Path | None = None
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()  # a client's thread may ask for the file

    @property
    def path(self) -> Path:
        """The file with the certificate alone, for clients to trust."""
        return self._ensure().with_name("cert.pem")

    def context(self) -> ssl.SSLContext:
        """The TLS context of the server."""
        if self._context is None:
            self._context = server_context(self._ensure())
        return self._context

    def close(self) -> None:
        """Remove the temporary folder."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _ensure(self) -> Path:
        with self._lock:
            if self._pem is None:
                folder = self._folder
                if folder is None:
                    self._temporary = tempfile.TemporaryDirectory(prefix="pairbus-tls-")
                    folder = Path(self._temporary.name)
                folder.mkdir(parents=True, exist_ok=True)
                self._pem = ensure_certificate(folder, [self._host])
            return self._pem


def make_certificate(hosts: list[str]) -> tuple[bytes, bytes]:
    """Return a new private key and its self-signed certificate for `hosts`, both PEM.

    `localhost` and the loopback addresses are always among the names.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    # Clients find a trusted certificate by its subject before they check its key, so the
    # certificates of two brokers in one file must have different subjects.
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "pairbus embedded broker"),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, os.urandom(8).hex()),
        ]
    )
    names: list[x509.GeneralName] = []
    for host in _names(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate.public_bytes(serialization.Encoding.PEM),
    )


def _names(hosts: list[str]) -> list[str]:
    wildcard = {"", "0.0.0.0", "::"}
    return list(
        dict.fromkeys(["localhost", "127.0.0.1", "::1", *(h for h in hosts if h not in wildcard)])
    )


def _is_usable(pem: Path, hosts: list[str]) -> bool:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(pem.read_bytes())
    except ValueError:
        return False
    if certificate.not_valid_after_utc < dt.datetime.now(dt.UTC) + dt.timedelta(days=7):
        return False
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    present = {str(name.value) for name in found}
    return present >= set(_names(hosts))
