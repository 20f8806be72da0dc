"""A private certificate authority for one broker, and what can be wrong with a certificate, in words.

The authority signs the broker's certificate and nothing else; clients pin it through their invitation. Clients prove
themselves by their nkey, so they need no certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from privatile.errors import InputError, require
from privatile.federation.wire.keys import fingerprint, write_private

require("cryptography", "federation")

from cryptography import x509  # noqa: E402  (after the check that gives the cure)
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: E402

AUTHORITY_DAYS = 3650
BROKER_DAYS = 730
"""Two years: longer than a study of months, short enough that renewal is not forgotten knowledge."""

BACKDATED = datetime.timedelta(days=1)
"""Certificates start a day early, so that a site whose clock is an hour slow still accepts them."""

SOON = datetime.timedelta(days=30)
"""`federation check` warns this long before a certificate ends."""


def make_authority(certificate: Path, key: Path, title: str) -> None:
    """Write a new authority: certificate and private key (mode 0600)."""
    private = _new_key()
    name = _name(f"privatile {title}"[:60])
    now = _now()
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .sign(private, hashes.SHA256())
    )
    write_private(key, _key_pem(private))
    certificate.write_bytes(_pem(built))


def issue_broker(
    authority: Path,
    authority_key: Path,
    certificate: Path,
    key: Path,
    hosts: Sequence[str],
    *,
    starts: datetime.datetime | None = None,
    days: float = BROKER_DAYS,
) -> None:
    """Write a broker's certificate for `hosts` (names or addresses), signed by the authority."""
    issuer = read_certificate(authority)
    issuer_key = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    issuer_public = issuer.public_key()
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey) or not isinstance(
        issuer_public, ec.EllipticCurvePublicKey
    ):
        raise InputError(f"{authority}: this authority was not made by `privatile federation init`.")
    private = _new_key()
    start = starts or _now() - BACKDATED
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    built = (
        x509.CertificateBuilder()
        .subject_name(_name(hosts[0][:60]))
        .issuer_name(issuer.subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    key.unlink(missing_ok=True)
    write_private(key, _key_pem(private))
    certificate.write_bytes(_pem(built))


def read_certificate(path: Path) -> x509.Certificate:
    """Load one PEM certificate."""
    try:
        return parse_certificate(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: the certificate cannot be read ({type(error).__name__}).") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def parse_certificate(pem: bytes) -> x509.Certificate:
    """Parse one PEM certificate."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise InputError("this is not a PEM certificate.") from None


def certificate_fingerprint(pem: bytes) -> str:
    """The fingerprint people compare, from the certificate's DER form."""
    return fingerprint(parse_certificate(pem).public_bytes(serialization.Encoding.DER).hex())


def broken_validity(certificate: x509.Certificate, what: str, now: datetime.datetime | None = None) -> list[str]:
    """What is wrong with a certificate's dates today; empty when nothing is."""
    now = now or _now()
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        return [f"{what} is not valid before {start:%Y-%m-%d %H:%M} UTC, and this machine's clock says {now:%H:%M}: "
                "set the clock, or issue it again with `privatile federation renew`."]  # fmt: skip
    if now > end:
        return [f"{what} expired on {end:%Y-%m-%d %H:%M} UTC: issue it again with `privatile federation renew`."]
    return []


def ends_soon(certificate: x509.Certificate, what: str) -> list[str]:
    """A warning when a certificate ends within a month."""
    end = certificate.not_valid_after_utc
    if end - _now() < SOON:
        return [f"{what} expires on {end:%Y-%m-%d}: renew it with `privatile federation renew`."]
    return []


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
