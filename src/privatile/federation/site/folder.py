"""A site's folder: its key, its policy, its ledger. Made where the data is; only the enrolment file leaves it.

SITE/NAME.key               the secret, mode 0600
SITE/policy.toml            the site's limits
SITE/NAME.enrolment.json    to be sent to the organizer
SITE/ledger.db              who has answered
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privatile.errors import InputError
from privatile.federation.setup.directory import replace_file
from privatile.federation.setup.invitation import Enrolment, Invitation
from privatile.federation.site.limits import policy_toml
from privatile.federation.wire.keys import KeyPair, read_key, write_private


@dataclass(frozen=True)
class Site:
    """The folder of one client on its own machine."""

    path: Path
    client: str

    @property
    def key_file(self) -> Path:
        """The secret."""
        return self.path / f"{self.client}.key"

    @property
    def policy_file(self) -> Path:
        """The site's limits."""
        return self.path / "policy.toml"

    @property
    def enrolment_file(self) -> Path:
        """What is sent to the organizer."""
        return self.path / f"{self.client}.enrolment.json"

    @property
    def ledger_file(self) -> Path:
        """Who has answered."""
        return self.path / "ledger.db"

    def key(self) -> KeyPair:
        """The client's key."""
        return read_key(self.key_file)


def enroll(invitation: Invitation, folder: Path, *, new_key: bool = False) -> Site:
    """Make a key on this machine, a policy to start from, and the enrolment to send back."""
    site = Site(folder, invitation.client)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if site.key_file.exists() and not new_key:
        key = site.key()
    else:
        if site.key_file.exists():
            number = 1
            while (old := folder / f"{invitation.client}.key.old{number}").exists():
                number += 1
            site.key_file.rename(old)
        key = KeyPair.generate()
        write_private(site.key_file, key.seed.encode() + b"\n")
    if not site.policy_file.exists():
        terms = invitation.study.clients[invitation.client]
        replace_file(site.policy_file, policy_toml(terms.epsilon, invitation.coordinator.fingerprint))
    Enrolment.make(invitation.client, invitation.study.identity, key).write(site.enrolment_file)
    return site


def find_site(invitation_path: Path, invitation: Invitation, folder: Path | None) -> Site:
    """The site's folder: the one named, else the one `enroll` makes beside the invitation."""
    site = Site(folder or default_folder(invitation_path, invitation.client), invitation.client)
    if not site.key_file.exists():
        raise InputError(
            f"{site.key_file}: this site has no key yet. Make it here with: privatile enroll {invitation_path}"
        )
    return site


def default_folder(invitation_path: Path, client: str) -> Path:
    """Beside the invitation."""
    return invitation_path.absolute().parent / f"site-{client}"
