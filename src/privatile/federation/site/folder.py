"""A site's folder: its key, its limits, its ledger. Made where the data is; only the enrolment file leaves it.

SITE/NAME.key               the secret, mode 0600
SITE/policy.toml            the site's limits
SITE/NAME.enrolment.json    to be sent to the organizer
SITE/ledger.db              who has answered
"""

from pathlib import Path

from privatile.errors import InputError
from privatile.federation.setup.files import replace_file, write_json
from privatile.federation.setup.invitation import Enrolment, Invitation
from privatile.federation.site.limits import limits_toml
from privatile.federation.wire.keys import KeyPair, read_key, write_private


class Site:
    """The folder of one client on its own machine."""

    def __init__(self, path: Path, client: str) -> None:
        self.path = path
        self.client = client
        self.key_file = path / f"{client}.key"
        self.limits_file = path / "policy.toml"
        self.enrolment_file = path / f"{client}.enrolment.json"
        self.ledger_file = path / "ledger.db"

    def key(self) -> KeyPair:
        """The client's key."""
        return read_key(self.key_file)


def enroll(invitation: Invitation, folder: Path, *, new_key: bool = False) -> Site:
    """Make a key on this machine, limits to start from, and the enrolment to send back."""
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
    if not site.limits_file.exists():
        agreement = invitation.study.clients[invitation.client]
        replace_file(site.limits_file, limits_toml(agreement.epsilon, invitation.coordinator.fingerprint))
    write_json(site.enrolment_file, Enrolment.make(invitation.client, invitation.study.identity, key))
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
