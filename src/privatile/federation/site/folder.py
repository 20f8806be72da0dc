"""A site's folder: its keys, its limits, its ledger. Made where the data is; only enrolment files leave it.

SITE/NAME.key               the secret of a client, mode 0600
SITE/policy.toml            the site's limits, for all studies
SITE/NAME.enrolment.json    to be sent to the organizer (of the last federation; earlier ones NAME.ID.enrolment.json)
SITE/ledger.db              who has answered, for all studies

Unless a folder is named it is the user's own, whatever the invitation and wherever it was opened: with two ledgers, or
two files of limits, the same records would answer two studies that each count once.
"""

from pathlib import Path

from privatile.errors import InputError, SiteRefusal
from privatile.federation.setup.invitation import Enrolment, Invitation, read_enrolment
from privatile.federation.site.limits import Invited, SiteLimits, limits_toml, no_limits, read_limits, refused
from privatile.records.keys import KeyPair, read_key
from privatile.run.files import replace_file, write_json, write_private


class Site:
    """The folder of one site, as one of its clients uses it."""

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

    def check_one_client(self, invitation: Invited) -> None:
        """Refuse a second client of one federation: its answers would be those of the first, counted twice."""
        for path in sorted(self.path.glob("*.enrolment.json")):
            known = read_enrolment(path)
            if known.identity == invitation.study.identity and not _may_both(invitation, known.client):
                raise SiteRefusal(
                    f"this site takes part in this federation as client {known.client} ({path}), and cannot be client "
                    f"{invitation.client} too: all its records would be asked twice. If this is another organization's "
                    "data on the same machine, give it a folder of its own with --site DIR."
                )


def _may_both(invitation: Invited, other: str) -> bool:
    """Whether a site may be both this client and another one: they are weight classes of its records, or the same."""
    clients, own = invitation.study.clients, invitation.study.clients[invitation.client]
    if other == invitation.client:
        return True
    return own.site is not None and other in clients and clients[other].site == own.site


def enroll(invitation: Invited, folder: Path, *, max_epsilon: float | None = None, new_key: bool = False) -> Site:
    """Make a key on this machine and the enrolment to send back.

    `max_epsilon` is the site's own limit, said once, when the site has no limits yet: an invitation never sets it.
    """
    site = Site(folder, invitation.client)
    site.check_one_client(invitation)
    _check_limits(site, invitation, max_epsilon, agreed=new_key)
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
    if max_epsilon is not None and not site.limits_file.exists():
        replace_file(site.limits_file, limits_toml(max_epsilon))
    enrolment = Enrolment.make(invitation.client, invitation.study.identity, key)
    if site.enrolment_file.exists() and (other := read_enrolment(site.enrolment_file)).identity != enrolment.identity:
        # Kept: it says in which federation this site is which client.
        site.enrolment_file.rename(folder / f"{invitation.client}.{other.identity}.enrolment.json")
    write_json(site.enrolment_file, enrolment)
    return site


def _check_limits(site: Site, invitation: Invited, max_epsilon: float | None, *, agreed: bool) -> None:
    """Refuse a site without limits, limits other than those it has, and a study that they refuse.

    A site that has `agreed` before and only makes a new key is asked about its limits when it runs.
    """
    if not site.limits_file.exists():
        if max_epsilon is None:
            raise no_limits(site.limits_file)
        if reasons := SiteLimits(max_epsilon).epsilon_refusals(invitation):  # a number that is no limit is refused
            raise refused(reasons, "Nothing was made. Give a larger --max-epsilon")
        return
    if not agreed and (reasons := read_limits(site.limits_file).epsilon_refusals(invitation)):
        raise refused(reasons, f"Nothing was made. Edit max_epsilon in {site.limits_file}")
    if max_epsilon is not None and max_epsilon != (known := read_limits(site.limits_file).max_epsilon):
        raise InputError(
            f"{site.limits_file}: this site's limit is max_epsilon = {known:g}; got {max_epsilon:g}. It holds for all "
            "studies: leave out --max-epsilon, or edit the file."
        )


def find_site(folder: Path, invitation: Invitation, invitation_path: Path) -> Site:
    """The site in a folder that `enroll` made."""
    site = Site(folder, invitation.client)
    if not site.key_file.exists():
        if site.enrolment_file.exists():
            raise InputError(
                f"{site.key_file}: the key of this site is missing, and the site has enrolled before. Put the file "
                "back from where you keep the keys, mode 0600. If it is lost: privatile enroll "
                f"{invitation_path} --new-key, and have the organizer admit the new enrolment."
            )
        raise InputError(
            f"{site.key_file}: this site has no key yet. Make it here with: privatile enroll {invitation_path}"
        )
    return site
