"""A server's certificate, as tests need one for TLS: `keytool`, which comes with Java, makes it."""

import subprocess
from pathlib import Path

from zync import java

PASSWORD = "correct horse battery"  # noqa: S105 - of servers that live as long as a test
CA = "ca.pem"
"""The file of the certificate to trust."""


def make(folder: Path) -> tuple[Path, Path]:
    """A store with a key for localhost, whose password is PASSWORD; and the certificate to trust, as PEM."""
    store, certificate = folder / "server.p12", folder / CA
    named = ("-alias", "server", "-keystore", store, "-storetype", "PKCS12", "-storepass", PASSWORD)
    subject = ("-dname", "CN=localhost", "-ext", "SAN=dns:localhost", "-validity", "2")
    _keytool("-genkeypair", "-keyalg", "RSA", *subject, *named)
    _keytool("-exportcert", "-rfc", "-file", certificate, *named)
    return store, certificate


def _keytool(*args: str | Path) -> None:
    program = Path(java.java()).resolve().with_name("keytool")
    subprocess.run([program, *args], check=True, capture_output=True)
