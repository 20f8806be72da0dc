"""Which folder is whose, and a new federation's folder from one whose run is over.

Which folder is whose: an organizer's, or that of an extension's organization.

Continue without a client: a new federation's folder from an old one, whose run is over.

Coordinator, authority, broker and the other clients' admissions stay; study hash, run and estimand are new. Weights
are stated by the organizer, never renormalised silently. Records that the old run asked do not answer again: the new
study asks at most what is left of the records that each client agreed to.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from privatile.core.extensions import of_path
from privatile.errors import InputError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.setup.folder import Directory, RevokedKey, Roster, check_coordinated, new_folder
from privatile.federation.setup.invitation import read_invitation
from privatile.federation.study import FederationStudy
from privatile.run.coordinator import Coordinator
from privatile.run.files import replace_file, write_private
from privatile.run.run_file import RunStore
from privatile.run.tables import running_process


def open_folder(path: Path) -> Directory:
    """A federation's folder as it is."""
    extension = of_path(path)
    return Directory(path) if extension is None else extension.open_folder(path)


def open_organizer(path: Path) -> Directory:
    """An organizer's folder; any other is refused."""
    check_coordinated(path)
    return Directory(path)


@dataclass(frozen=True)
class Derived:
    """The new folder, and what is different about it."""

    directory: Directory
    old: FederationStudy
    asked: Mapping[str, int]
    """Records of each remaining client that the old run has asked, or may have."""

    def to_text(self) -> str:
        """A few lines for people."""
        new = self.directory.study()
        lines = [
            f"study        {self.directory.study_file}  (hash {new.digest[:16]}, was {self.old.digest[:16]})",
            f"run          {new.run}",
        ]
        for name, agreement in new.clients.items():
            before = self.old.clients[name]
            lines.append(
                f"client       {name}: weight {before.weight:g} -> {agreement.weight:g}, records {before.records:,} -> "
                f"{agreement.records:,} ({self.asked[name]:,} were asked and answer no more)"
            )
        gone = ", ".join(sorted(set(self.old.clients) - set(new.clients)))
        lines.append(f"estimand     ANOTHER ONE: the quantile of the mixture of these clients, without {gone}.")
        lines += [f"invitation   {self.directory.invitation_file(name)}  -> send to {name}" for name in new.clients]
        lines.append("The clients' keys stay admitted; nobody enrols again. Sites join with the new invitation.")
        return "\n".join(lines)


def derive(
    old: Directory,
    path: Path,
    without: Collection[str],
    *,
    weights: Mapping[str, float] | None = None,
    proportional: bool = False,
    records: Mapping[str, int] | None = None,
    rounds: int | None = None,
    title: str | None = None,
) -> Derived:
    """Write a new folder for the clients of `old` but those in `without`; the old one is only read."""
    study = old.study()
    if study.is_open:
        raise InputError(
            "an open study is not continued without a client: its people are known by name in the sites' ledgers, and "
            "do not answer again. Begin a new study with `privatile federation init --open`."
        )
    unknown = sorted(set(without) - set(study.clients))
    if unknown:
        raise InputError(f"the study has no client {', '.join(unknown)}. Its clients: {', '.join(study.clients)}.")
    left = [name for name in study.clients if name not in without]
    if not without or not left:
        raise InputError("a derived study leaves out at least one client and keeps at least one.")
    asked = _asked(old, study)
    shares = _weights(study, left, weights or {}, proportional)
    plain = study.to_dict()
    plain["clients"] = {
        name: {
            **plain["clients"][name],
            "weight": shares[name],
            "records": (records or {}).get(name, study.clients[name].records - asked[name]),
        }
        for name in left
    }
    plain["title"] = title or f"{study.title}, without {', '.join(sorted(without))}"[:200]
    plain["rounds"] = study.rounds if rounds is None else rounds
    plain["quorum"] = 0 if study.quorum == len(study.clients) else min(study.quorum, len(left))
    return Derived(_write(old, path, FederationStudy.from_dict(plain), left), study, asked)


def _weights(
    study: FederationStudy, left: list[str], stated: Mapping[str, float], proportional: bool
) -> dict[str, float]:
    total = sum(study.clients[name].weight for name in left)
    shares = {name: study.clients[name].weight / total for name in left}
    if proportional:
        if stated:
            raise InputError("weights are either stated one by one or kept in proportion, not both.")
        return shares
    if set(stated) != set(left):
        shown = " ".join(f"--client-weights {name}={shares[name]:.6g}" for name in left)
        raise InputError(
            "the weights decide which mixture is estimated, and without a client it is another one: state the weight "
            f"of every client that is left, {', '.join(left)}. The old proportions (--proportional) would be {shown}."
        )
    return dict(stated)


def _asked(old: Directory, study: FederationStudy) -> dict[str, int]:
    """Records that the old run may have asked of each client; refused unless that run is over."""
    if running_process(old.pid_file) is not None:
        raise InputError("the coordinator of the old run is running. End that run first: privatile federation abort")
    if not old.store_file.exists():
        return dict.fromkeys(study.clients, 0)
    with RunStore.open(old.store_file, read_only=True) as store:
        if store.run != study.run:
            raise InputError(f"{old.store_file} holds another run than the study's.")
        if store.finished is None and not Journal(store).aborted():
            raise InputError(
                f"the run of {old.path} is neither finished nor aborted, and both runs would want the same records. "
                f"End it for good first: privatile federation abort {old.path}"
            )
        coordinator = Coordinator(store)
        asked = coordinator.asked
        if store.finished is None:
            # The round that was being asked may have been answered without being counted.
            for name, questions in coordinator.questions().items():
                asked[name] += sum(question.length for question in questions)
    return asked


def _write(old: Directory, path: Path, study: FederationStudy, left: list[str]) -> Directory:
    roster = old.roster()
    invitation = old.invitation_file(left[0])
    brokers = read_invitation(invitation).brokers if invitation.exists() else ()
    new = new_folder(path, study, old.settings())
    for secret, copy in zip(old.secrets, new.secrets, strict=True):
        write_private(copy, secret.read_bytes())
    for certificate, copy in zip(old.certificates, new.certificates, strict=True):
        replace_file(copy, certificate.read_text(encoding="ascii"))
    kept = {name: keys for name, keys in roster.clients.items() if name in left}
    gone = tuple(RevokedKey(name, keys) for name, keys in roster.clients.items() if name not in left)
    new.save_roster(Roster(kept, (*roster.revoked, *gone)))
    new.invite(brokers)
    return new
