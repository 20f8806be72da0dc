"""A private certificate authority for one broker, and what can be wrong with a certificate, in words.

The authority signs the broker's certificate and nothing else; the invitation tells clients to trust it alone. Clients
log in with their nkey, so they need no certificate.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from privatile.core.text import fingerprint
from privatile.errors import InputError, require
from privatile.run.files import write_private

require("cryptography", "federation")

from cryptography import x509  # noqa: E402  (after the check above)
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: E402

AUTHORITY_DAYS = 3650
BROKER_DAYS = 730
"""Two years: longer than most studies, and short enough that people still know how to renew it."""

BACKDATED = datetime.timedelta(days=1)
"""Certificates start a day early, so that a site whose clock is an hour slow still accepts them."""

SOON = datetime.timedelta(days=30)
"""`federation check` warns this long before a certificate ends."""


def make_authority(certificate: Path, key: Path, title: str) -> None:
    """Write a new authority: certificate and private key (mode 0600)."""
    _issue(certificate, key, f"privatile {title}", None, _now() - BACKDATED, AUTHORITY_DAYS)


def issue_broker(
    authority: Path,
    authority_key: Path,
    certificate: Path,
    key: Path,
    hosts: Sequence[str],
    *,
    starts: datetime.datetime | None = None,
    days: float = BROKER_DAYS,
    cluster: bool = False,
) -> None:
    """Write a broker's certificate for `hosts` (names or addresses), signed by the authority.

    A server of a `cluster` shows it to other servers as well, when it connects to them.
    """
    issuer_key = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{authority}: this authority was not made by `privatile federation init`.")
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if cluster else [])]
    purpose = x509.ExtendedKeyUsage(uses)
    names = x509.SubjectAlternativeName([_host_name(host) for host in hosts])
    issuer = (read_certificate(authority).subject, issuer_key)
    key.unlink(missing_ok=True)
    _issue(certificate, key, hosts[0], issuer, starts or _now() - BACKDATED, days, purpose, names)


def _issue(
    certificate: Path,
    key: Path,
    name: str,
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None,
    start: datetime.datetime,
    days: float,
    *extensions: x509.ExtensionType,
) -> None:
    """Write a new key and its certificate. Without an issuer it signs itself and may sign others: an authority."""
    private, authority = ec.generate_private_key(ec.SECP256R1()), issuer is None
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:60])])
    issuer_name, signer = issuer or (subject, private)
    usage = x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    pem = serialization.Encoding.PEM
    write_private(key, private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    certificate.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(pem))


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


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


RENEWAL = "issue it again with `privatile federation renew`"


def broken_validity(
    certificate: x509.Certificate, what: str, now: datetime.datetime | None = None, *, cure: str = RENEWAL
) -> list[str]:
    """What is wrong with a certificate's dates today, and its cure; empty when nothing is."""
    now = now or _now()
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        return [
            f"{what} is not valid before {start:%Y-%m-%d %H:%M} UTC, and this machine's clock says {now:%H:%M}: "
            f"set the clock, or {cure}."
        ]
    if now > end:
        return [f"{what} expired on {end:%Y-%m-%d %H:%M} UTC: {cure}."]
    return []


def ends_soon(certificate: x509.Certificate, what: str) -> list[str]:
    """A warning when a certificate ends within a month."""
    end = certificate.not_valid_after_utc
    if end - _now() < SOON:
        return [f"{what} expires on {end:%Y-%m-%d}: renew it with `privatile federation renew`."]
    return []
