"""Set-up: keys stay private, invitations hold no secret, admission needs the fingerprint, check reports all errors."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import re
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from privatile.cli import main
from privatile.errors import BrokerError, InputError
from privatile.federation.connection import _is_no_noise, client_context
from privatile.federation.setup.broker import check_configuration, find_binary
from privatile.federation.setup.check import check
from privatile.federation.setup.folder import add_client, admit, initialize, renew, revoke
from privatile.federation.setup.invitation import Enrolment, read_enrolment, read_invitation
from privatile.federation.setup.permissions import client_permissions
from privatile.federation.site.folder import enroll
from privatile.federation.site.limits import SiteLimits, read_limits
from privatile.records.keys import KeyPair, read_key, verify
from privatile.run.certificates import (
    broken_validity,
    issue_broker,
    make_authority,
    read_certificate,
)
from privatile.run.files import write_private
from tests.federation.kit import Federation, make_study
from tests.federation.mutations import DROPPED, places, with_a_key_twice, with_value

pytestmark = pytest.mark.network


@pytest.fixture
def made(tmp_path: Path) -> Federation:
    return Federation(tmp_path, make_study())


def test_private_files_are_private_and_nothing_sent_holds_a_secret(made: Federation) -> None:
    secrets = [made.directory.key_file, made.directory.authority_key, made.directory.broker_files.key]
    secrets += [site.key_file for site in made.sites.values()]
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    seeds = {path.read_text().strip() for path in secrets}
    seeds |= {line for text in seeds for line in text.splitlines() if len(line) > 30}
    sent = [made.directory.invitation_file(name) for name in made.study.clients]
    sent += [site.enrolment_file for site in made.sites.values()]
    sent += [made.directory.broker_files.configuration, made.directory.roster_file]
    for path in sent:
        text = path.read_text()
        assert not any(seed in text for seed in seeds), path
        assert "PRIVATE KEY" not in text


def shake_hands(authority: Path, certificates: bytes, key: Path) -> None:
    """What a site's connection does with the certificates that a server shows; raises where it refuses them."""
    chain = key.with_suffix(".chain")
    chain.write_bytes(certificates)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    to_server, to_site = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_site, server_side=True)
    site = client_context(authority.read_text()).wrap_bio(to_site, to_server, server_hostname="127.0.0.1")
    for side in (site, server, site):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()


def test_the_authority_signs_brokers_and_no_other_authority(made: Federation, tmp_path: Path) -> None:
    """Whoever gets one certificate signed that may sign others could speak as the broker for ten years."""
    directory = made.directory
    middle, own_key, leaf, key = (tmp_path / name for name in ("middle.pem", "middle.key", "leaf.pem", "leaf.key"))
    make_authority(middle, own_key, "another")
    issue_broker(middle, own_key, leaf, key, ["127.0.0.1"])
    issuer = serialization.load_pem_private_key(directory.authority_key.read_bytes(), None)
    assert isinstance(issuer, ec.EllipticCurvePrivateKey)
    found = read_certificate(middle)
    signed = x509.CertificateBuilder(
        read_certificate(directory.authority).subject,
        found.subject,
        found.public_key(),
        found.serial_number,
        found.not_valid_before_utc,
        found.not_valid_after_utc,
        list(found.extensions)[:3],  # it may sign, as an authority
    ).sign(issuer, hashes.SHA256())
    files = directory.broker_files
    shake_hands(directory.authority, files.certificate.read_bytes(), files.key)  # the control: the broker's own
    shake_hands(middle, leaf.read_bytes(), key)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(directory.authority, leaf.read_bytes() + signed.public_bytes(serialization.Encoding.PEM), key)


def test_a_key_shows_only_its_public_half() -> None:
    key = KeyPair.generate()
    assert key.seed not in repr(key)
    assert key.seed not in str(vars(key).get("public"))
    assert key.public.login != key.public.signer


def test_the_signer_is_not_the_login_key() -> None:
    # A broker chooses what the login key signs; it must not get messages signed that way.
    key = KeyPair.generate()
    signature = key.sign(b"a message")
    assert verify(key.public.signer, b"a message", signature)
    assert not verify(key.public.login, b"a message", signature)
    assert not verify(key.public.signer, b"another", signature)


def test_keys_are_never_overwritten_and_open_modes_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    write_private(path, KeyPair.generate().seed.encode())
    with pytest.raises(InputError, match="exists already"):
        write_private(path, b"x")
    path.chmod(0o644)
    with pytest.raises(InputError, match="0644"):
        read_key(path)
    path.chmod(0o600)
    assert read_key(path).public.login.startswith("U")
    path.write_text("SUAAAA")
    with pytest.raises(InputError, match="not a key seed"):
        read_key(path)


def test_init_refuses_a_folder_in_use(made: Federation) -> None:
    with pytest.raises(InputError, match="not empty"):
        initialize(made.directory.path, made.study, made.settings)


def test_everything_in_order(made: Federation) -> None:
    findings = check(made.directory)
    assert findings.errors == []
    assert findings.remarks == []


def test_check_does_not_say_in_order_below_a_client_that_is_not_admitted(made: Federation) -> None:
    def said(code: int) -> str:
        done = CliRunner().invoke(main, ["federation", "check", str(made.directory.path)])
        assert done.exit_code == code, done.output
        return done.output

    assert "Everything is in order." in said(0)
    name = next(iter(made.study.clients))
    revoke(made.directory, name)
    assert f"not admitted yet: {name}" in said(1)
    assert "in order" not in said(1)


def test_the_invitations_range_is_written_as_everywhere(made: Federation) -> None:
    invitation = read_invitation(made.directory.invitation_file(next(iter(made.study.clients))))
    study = dataclasses.replace(invitation.study, range=(1000.0, 1e6))
    rows = dict(dataclasses.replace(invitation, study=study).rows())
    assert "q within 1,000 to 1,000,000, " in rows["question"]


def test_asyncios_word_about_tls_is_dropped_and_no_other() -> None:
    words = ("returning true from eof_received() has no effect when using ssl", "another")
    records = [logging.LogRecord("asyncio", logging.WARNING, "", 0, text, None, None) for text in words]
    assert [_is_no_noise(record) for record in records] == [False, True]


def test_check_reports_everything_at_once(made: Federation) -> None:
    directory = made.directory
    text = directory.study_file.read_text()
    directory.study_file.write_text(text.replace("patience = 20", "patience = 7"))
    directory.authority_key.chmod(0o644)
    directory.roster_file.write_text(json.dumps({"clients": {}, "revoked": []}))
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=9)
    files = directory.broker_files
    issue_broker(
        directory.authority, directory.authority_key, files.certificate, files.key, ["localhost"], starts=start, days=1
    )
    findings = check(directory)
    reported = "\n".join(findings.errors)
    for word in ("another version of the study", "chmod 600", "expired"):
        assert word in reported
    assert "site0, site1" in "\n".join(findings.missing)


def test_study_with_errors_is_found_by_check(made: Federation) -> None:
    path = made.directory.study_file
    path.write_text(path.read_text().replace("level = 0.5", "level = 2").replace("rounds = 10", "rounds = 100"))
    reported = "\n".join(check(made.directory).errors)
    assert "level: must lie" in reported
    assert "site0.records" in reported


def test_admission_needs_the_fingerprint_read_out(made: Federation) -> None:
    site = enroll(made.invitation("site0"), made.folder / "site0", new_key=True)
    enrolment = read_enrolment(site.enrolment_file)
    with pytest.raises(InputError, match="the fingerprint is not that of the key") as refused:
        admit(made.directory, enrolment, "0" * 32)
    right = enrolment.keys.fingerprint
    assert not any(
        word in str(refused.value) for word in (right, right.replace("-", ""), right[:9])
    )  # nothing to paste
    admit(made.directory, enrolment, enrolment.keys.fingerprint.upper().replace("-", " "))
    assert made.directory.roster().clients["site0"] == enrolment.keys


def test_a_replaced_key_can_never_be_admitted_again(made: Federation) -> None:
    old = read_enrolment(made.sites["site0"].enrolment_file)
    made.enroll("site0", new_key=True)
    text = made.directory.broker_files.configuration.read_text()
    assert old.keys.login not in text
    assert made.sites["site0"].key().public.login in text
    with pytest.raises(InputError, match="revoked before"):
        admit(made.directory, old, old.keys.fingerprint)


def test_revocation(made: Federation) -> None:
    login = made.sites["site1"].key().public.login
    revoke(made.directory, "site1")
    assert login not in made.directory.broker_files.configuration.read_text()
    with pytest.raises(InputError, match="no key to revoke"):
        revoke(made.directory, "site1")


def test_one_key_cannot_be_two_clients(made: Federation) -> None:
    key = made.sites["site0"].key()
    other = Enrolment.make("site1", made.study.identity, key)
    with pytest.raises(InputError, match="already that of client site0"):
        admit(made.directory, other, other.keys.fingerprint)


def test_enrolment_for_another_federation_or_client_is_refused(made: Federation) -> None:
    key = KeyPair.generate()
    for enrolment, word in (
        (Enrolment.make("site0", "0" * 12, key), "another federation"),
        (Enrolment.make("west", made.study.identity, key), "no client 'west'"),
    ):
        with pytest.raises(InputError, match=word):
            admit(made.directory, enrolment, enrolment.keys.fingerprint)


def test_edited_files_are_refused(made: Federation, tmp_path: Path) -> None:
    fields = json.loads(made.directory.invitation_file("site0").read_text())
    fields["study"]["clients"]["site0"]["epsilon"] = 0.5
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(fields))
    with pytest.raises(InputError, match="does not match its hash"):
        read_invitation(edited)
    fields = json.loads(made.sites["site0"].enrolment_file.read_text())
    fields["keys"] = msgspec.to_builtins(KeyPair.generate().public)
    edited.write_text(json.dumps(fields))
    with pytest.raises(InputError, match="signature does not fit"):
        read_enrolment(edited)
    for path, read in (
        (made.directory.invitation_file("site0"), read_invitation),
        (made.sites["site0"].enrolment_file, read_enrolment),
    ):
        assert read(path)
        for text in with_a_key_twice(path.read_text()):
            edited.write_text(text)
            with pytest.raises(InputError, match="an object has a key twice"):
                read(edited)
    for text in ("", "[]", "{", '{"privatile_invitation": 2}', "null"):
        edited.write_text(text)
        with pytest.raises(InputError):
            read_invitation(edited)
        with pytest.raises(InputError):
            read_enrolment(edited)


WRONG: tuple[Any, ...] = (None, True, -1, 0.5, 10**30, "", "x", [], {}, [1], {"a": 1}, DROPPED)


def test_files_with_a_field_more_or_less_or_wrong_are_refused(made: Federation) -> None:
    directory = made.directory
    readers: dict[Path, Callable[[], object]] = {
        directory.invitation_file("site0"): lambda: made.invitation("site0"),
        made.sites["site0"].enrolment_file: lambda: read_enrolment(made.sites["site0"].enrolment_file),
        directory.roster_file: directory.roster,
        directory.settings_file: directory.settings,
    }
    # What a file may hold as well: anybody's address, nobody admitted, no key revoked, the default settings.
    fine = {"listen": ("", "x", DROPPED), "port": (DROPPED,), "hosts": (DROPPED,), "clients": ({},), "revoked": ([],)}
    for file, read in readers.items():
        text = file.read_text()
        read()
        for path in [*places(json.loads(text)), ("more",)]:
            if path[0] == "study" and len(path) > 1:
                continue  # the study's own test; an edited one does not fit its hash
            for value in WRONG:
                if path == ("more",) and value is DROPPED:
                    continue
                if value in fine.get(str(path[-1]), ()) or (path[0] == "hosts" and len(path) > 1):
                    continue
                if path[0] == "clients" and len(path) == 2 and value is DROPPED:
                    continue
                file.write_text(with_value(text, path, value))
                with pytest.raises(InputError, match=re.escape(str(file))):
                    read()
        file.write_text(text)
        read()


def test_adding_a_client_changes_the_study_before_the_run_only(made: Federation) -> None:
    before = made.study.digest
    add_client(made.directory, "west", 0.5, 40, 0.2)
    study = made.directory.study()
    assert study.digest != before
    assert study.clients["site0"].weight == pytest.approx(0.4)
    assert study.quorum == 3
    assert read_invitation(made.directory.invitation_file("west")).study == study
    made.open_run().store.close()
    with pytest.raises(InputError, match="run has begun"):
        add_client(made.directory, "east", 0.5, 40, 0.2)


def test_permissions_name_one_client_only(made: Federation) -> None:
    publish, subscribe = client_permissions(made.study.identity, "site0")
    assert not [subject for subject in publish + subscribe if "site1" in subject or "*" in subject]
    assert [subject for subject in subscribe if subject.endswith(">")] == ["_INBOX_site0.>"]


def test_the_broker_itself_accepts_the_configuration(made: Federation) -> None:
    files = made.directory.broker_files
    check_configuration(find_binary().path, files)
    files.configuration.write_text("listen: [")
    with pytest.raises(BrokerError, match="refuses"):
        check_configuration(find_binary().path, files)


def test_certificate_dates_in_words(tmp_path: Path) -> None:
    make_authority(tmp_path / "a.pem", tmp_path / "a.key", "test")
    certificate = read_certificate(tmp_path / "a.pem")
    now = datetime.datetime.now(datetime.UTC)
    hour = datetime.timedelta(hours=1)
    assert broken_validity(certificate, "it", now) == []
    assert broken_validity(certificate, "it", now - hour) == []  # a clock that is an hour slow does no harm
    assert "clock" in broken_validity(certificate, "it", now - datetime.timedelta(days=2))[0]
    assert "expired" in broken_validity(certificate, "it", now + datetime.timedelta(days=9999))[0]
    client_context((tmp_path / "a.pem").read_text())


def test_renewal_with_other_names_rewrites_the_invitations(made: Federation) -> None:
    renew(made.directory, hosts=("broker.example", "127.0.0.1"), port=5555)
    assert made.invitation("site0").brokers == ("tls://broker.example:5555",)
    assert check(made.directory).errors == []


def test_limits_file(tmp_path: Path, made: Federation) -> None:
    assert read_limits(made.sites["site0"].limits_file).max_epsilon == 1.0
    path = tmp_path / "policy.toml"
    path.write_text('max_epsilon = true\nmin_cohort = "a"\nvalues = [1]\nfriend = 1\n')
    with pytest.raises(InputError) as caught:
        read_limits(path)
    for word in ("max_epsilon", "min_cohort", "values", "friend"):
        assert word in str(caught.value)


def test_limits_refuse_budget_column_and_coordinator(made: Federation) -> None:
    invitation = made.invitation("site0")
    assert SiteLimits(1.0).refusals(invitation, "x") == []
    assert "allow 0.5" in SiteLimits(0.5).refusals(invitation, "x")[0]
    strict = SiteLimits(0.5, values=("y",), coordinators=("00",))
    assert len(strict.refusals(invitation, "x")) == 3
