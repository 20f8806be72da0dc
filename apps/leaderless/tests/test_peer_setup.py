"""Enrolment without a middle: everybody builds the same roster from the same files, or is told why not."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from privatile.cli import main
from privatile.errors import BrokerError, InputError
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.setup.permissions import BrokerSettings
from privatile.federation.site.limits import SiteLimits
from privatile_leaderless.conduct import VoteBox, proposal_delay
from privatile_leaderless.folder import MAKING, READING, PeerFolder, cluster_accounts
from privatile_leaderless.roster import PeerInvitation, read_peer_enrolment
from privatile_leaderless.service import PORT_IN_USE, recover

NAMES = ("north", "south", "west")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def init(folder: Path, *options: str, clients: tuple[str, ...] = NAMES) -> Result:
    words = [word for name in clients for word in ("--add-client", name)]
    numbers = ["--epsilon", "1", "--records", "400", "--range", "0", "100", "--rounds", "20"]
    return call("federation", "init", folder, *words, *numbers, *options)


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("enrolled")
    made = init(folder / "study", "--leaderless")
    assert made.exit_code == 0, made.output
    assert "2 of 3 sign every round: 1 may be away, 0 may lie" in made.output
    for place, name in enumerate(NAMES):
        ports = ("--port", 5000 + place, "--cluster-port", 6000 + place) if name != "west" else ()
        host = ("--host", "localhost") if ports else ()
        site = ("--site", folder / f"site-{name}", "--max-epsilon", "1")
        done = call(
            "peer",
            "enroll",
            folder / "study" / "invitation.json",
            folder / name,
            "--as-client",
            name,
            *site,
            *host,
            *ports,
        )
        assert done.exit_code == 0, done.output
    return folder


def files(folder: Path) -> list[Path]:
    return [folder / name / f"{name}.peer.json" for name in NAMES]


def test_everybody_builds_the_same_roster(enrolled: Path) -> None:
    said = [call("peer", "admit", enrolled / name, *files(enrolled)) for name in NAMES]
    assert [one.exit_code for one in said] == [0, 0, 0], said[0].output
    rosters = {(enrolled / name / "roster.json").read_text() for name in NAMES}
    assert len(rosters) == 1
    roster = PeerFolder.open(enrolled / "north").peers()
    assert all(roster.fingerprint in one.output for one in said)
    assert (list(roster.servers), roster.replicas) == (["north", "south"], 1)
    south = roster.servers["south"]
    assert roster.authority_of(south.url()) == south.authority != roster.servers["north"].authority
    assert roster.authority_of("tls://elsewhere:4222") == roster.authorities
    again = call("peer", "admit", enrolled / "south", *files(enrolled), "--fingerprint", roster.fingerprint.upper())
    assert again.exit_code == 0
    other = call("peer", "admit", enrolled / "south", *files(enrolled), "--fingerprint", "0" * 32)
    assert (other.exit_code, "nothing was admitted" in other.output) == (2, True)


def test_what_does_not_fit_is_refused(enrolled: Path, tmp_path: Path) -> None:
    north, south, _ = files(enrolled)
    short = call("peer", "admit", enrolled / "north", north, south)
    assert (short.exit_code, "no enrolment of west" in short.output) == (2, True)
    plain = json.loads(south.read_text())
    plain["server"]["host"] = "evil.example"
    (tmp_path / "edited.json").write_text(json.dumps(plain))
    edited = call("peer", "admit", enrolled / "north", north, tmp_path / "edited.json")
    assert (edited.exit_code, "was edited" in edited.output) == (2, True)
    with pytest.raises(InputError, match="an enrolment of a peer"):
        read_peer_enrolment(enrolled / "site-north" / "north.enrolment.json")
    twice = call(
        "peer", "enroll", enrolled / "study" / "invitation.json", tmp_path / "new", "--as-client", "south",
        "--site", enrolled / "site-north",
    )  # fmt: skip
    assert twice.exit_code == 5, twice.output  # one site, two clients: all its records would be asked twice
    assert "asked twice" in twice.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--tolerate", "1"), "add --leaderless"),
        (("--leaderless", "--tolerate", "1"), "at least 4 clients"),
        (("--leaderless", "--host", "broker.example"), "names its own server"),
        (("--leaderless", "--quorum", "2"), "quorum"),
    ],
)
def test_init_refuses(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    done = init(tmp_path / "study", *options)
    assert (done.exit_code, told in done.output) == (2, True), done.output
    assert not (tmp_path / "study").exists()


def test_one_client_has_nobody_to_agree_with(tmp_path: Path) -> None:
    done = init(tmp_path / "study", "--leaderless", clients=("north",))
    assert done.exit_code == 2
    assert "clients: must be at least 2 in a study without a coordinator" in done.output
    assert "tolerate" not in done.output
    assert "liars" not in done.output


def test_an_open_study_is_refused_before_its_weights_are_asked_for(tmp_path: Path) -> None:
    done = init(tmp_path / "study", "--leaderless", "--open")
    assert (done.exit_code, "an open study needs a coordinator" in done.output) == (2, True), done.output
    assert "--weight" not in done.output


def enroll(enrolled: Path, folder: Path, site: Path, *options: object) -> Result:
    words = ("--as-client", "north", "--site", site, *options)
    return call("peer", "enroll", enrolled / "study" / "invitation.json", folder, *words)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--host", "localhost", "--port", 5000, "--cluster-port", 5000), "two different ports"),
        (("--host", "not a host"), "a host is a name or an address"),
        (("--host", "münchen.example"), "a host is a name or an address"),
    ],
)
def test_a_refused_enrolment_leaves_nothing_behind(
    enrolled: Path, tmp_path: Path, options: tuple[object, ...], told: str
) -> None:
    refused = enroll(enrolled, tmp_path / "north", tmp_path / "site", "--max-epsilon", 1, *options)
    assert (refused.exit_code, told in refused.output) == (2, True), refused.output
    assert list(tmp_path.iterdir()) == []
    again = enroll(enrolled, tmp_path / "north", tmp_path / "site", "--max-epsilon", 1, "--host", "localhost")
    assert again.exit_code == 0, again.output


def test_limits_below_the_studys_epsilon_are_said_at_the_enrolment(enrolled: Path, tmp_path: Path) -> None:
    folder, site = tmp_path / "north", tmp_path / "site"
    refused = enroll(enrolled, folder, site, "--max-epsilon", 0.5)
    assert refused.exit_code == 5
    assert "the study asks epsilon 1; this site's limits allow 0.5 per person for life" in refused.output
    assert "Give a larger --max-epsilon" in refused.output
    assert list(tmp_path.iterdir()) == []
    site.mkdir()
    (site / "policy.toml").write_text("max_epsilon = 0.5\n")
    refused = enroll(enrolled, folder, site)
    assert refused.exit_code == 5
    assert f"Edit max_epsilon in {site / 'policy.toml'}" in " ".join(refused.output.split())
    assert not folder.exists()
    (site / "policy.toml").write_text("max_epsilon = 1.0\n")
    assert enroll(enrolled, folder, site).exit_code == 0


def test_missing_limits_name_the_command_that_was_typed(enrolled: Path, tmp_path: Path) -> None:
    missing = enroll(enrolled, tmp_path / "north", tmp_path / "site")
    assert missing.exit_code == 2
    assert "--max-epsilon NUMBER when you enroll" in " ".join(missing.output.split())
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_invitation_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"privatile_peer_invitation": 1, ')
    for path, told in ((tmp_path, "is a folder"), (tmp_path / "cut.json", "it is not JSON")):
        done = call("peer", "enroll", path, tmp_path / "north", "--as-client", "north")
        assert (done.exit_code, told in done.output, "Error" in done.output) == (2, True, False), done.output


def test_what_cannot_be_taken_back_is_asked_before(enrolled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    north = enrolled / "north"
    assert call("peer", "admit", north, *files(enrolled)).exit_code == 0
    box = north / "abort.vote"
    for words in (("vote", north, "--abort"), ("recover", north)):
        refused = call("peer", *words)
        assert (refused.exit_code, "--yes" in refused.output) == (2, True), refused.output
    assert not box.exists()
    monkeypatch.setattr("privatile.cli.options.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    for words in (("vote", north, "--abort"), ("recover", north)):
        no = CliRunner().invoke(main, ["peer", *map(str, words)], input="n\n")
        assert (no.exit_code, "[y/N]" in no.output) == (1, True), no.output
    assert not box.exists()
    assert not (north / "run.db").exists()
    yes = CliRunner().invoke(main, ["peer", "vote", str(north), "--abort"], input="y\n")
    assert yes.exit_code == 0, yes.output
    assert VoteBox(box).pending
    VoteBox(box).done()
    assert not box.exists()
    monkeypatch.undo()
    assert call("peer", "vote", north, "--abort", "--yes").exit_code == 0
    assert VoteBox(box).pending
    box.unlink()


def test_a_file_that_is_not_there_is_an_error_of_use(enrolled: Path, tmp_path: Path) -> None:
    assert call("peer", "admit", enrolled / "north", *files(enrolled)).exit_code == 0
    for path, told in ((tmp_path / "nix.db", "there is no file"), (tmp_path, "is a folder")):
        done = call("peer", "catch-up", enrolled / "north", "--from", path)
        assert (done.exit_code, told in done.output, "estimate" in done.output) == (2, True, False), done.output


def test_a_study_with_a_coordinator_has_no_peers(enrolled: Path, tmp_path: Path) -> None:
    assert init(tmp_path / "study").exit_code == 0
    done = call("peer", "admit", tmp_path / "study", *files(enrolled))
    assert (done.exit_code, "not a peer's folder" in done.output) == (2, True)
    served = call("serve", enrolled / "north")
    assert served.exit_code == 2, served.output


def test_a_study_without_a_coordinator_is_neither_served_nor_joined(enrolled: Path, tmp_path: Path) -> None:
    invitation = enrolled / "study" / "invitation.json"
    for words in (
        ("serve", enrolled / "study"),
        ("serve", enrolled / "north"),
        ("federation", "renew", enrolled / "study"),
        ("join", invitation, "--value", "x", "--source", tmp_path / "none.csv"),
        ("join", enrolled / "north", "--value", "x"),
        ("enroll", invitation),
    ):
        done = call(*words)
        assert done.exit_code == 2, done.output
        assert "this study has no coordinator" in done.output, words
        assert "`privatile peer enroll INVITATION DIR --as-client NAME`" in done.output
        assert "`privatile peer run DIR`" in done.output
    # Where there is none of either, the usual reasons are given.
    for words, told in (
        (("serve", tmp_path), "there is no study file"),
        (("join", tmp_path / "none.json", "--value", "x"), "must be an invitation of this version"),
    ):
        done = call(*words)
        assert (done.exit_code, told in done.output, "coordinator" in done.output) == (2, True, False), done.output


def test_the_folder_of_the_study_is_nobodys(enrolled: Path) -> None:
    assert "federation invite" not in (enrolled / "study" / "study.toml").read_text()
    for command in (("check",), ("invite",)):
        done = call("federation", *command, enrolled / "study")
        assert done.exit_code == 2
        assert "privatile peer enroll" in done.output
        assert "backup" not in done.output
    told = "Give your organization's folder, the one that `privatile peer enroll` made."
    for words in (
        ("federation", "check"),
        ("release", "--sign", enrolled / "record.json"),
        ("status",),
        ("dashboard",),
    ):
        done = call(*words, enrolled / "study")
        assert (done.exit_code, told in done.output) == (2, True), done.output
        assert "privatile serve" not in done.output
    assert told in call("status", enrolled / "study" / "run.db").output
    assert "as north sees it" in call("status", enrolled / "north").output  # the control: its own folder


@pytest.mark.network
def test_a_peers_port_that_is_taken(enrolled: Path) -> None:
    files = PeerFolder.open(enrolled / "north").broker_files
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = BrokerSettings("127.0.0.1", taken.getsockname()[1], ("localhost",))
        with pytest.raises(BrokerError, match="enroll into a new folder"):
            EmbeddedBroker(files, settings, PORT_IN_USE).check_ports()
        with pytest.raises(BrokerError, match="federation renew --port"):
            EmbeddedBroker(files, settings).check_ports()
        free = BrokerSettings("127.0.0.1", free_port(), ("localhost",))
        with pytest.raises(
            BrokerError, match=f"cannot listen on 127.0.0.1:{settings.port}: .*enroll into a new folder"
        ):
            EmbeddedBroker(files, free, PORT_IN_USE, cluster_port=settings.port).check_ports()


def test_a_site_may_allow_certain_rosters_only(enrolled: Path) -> None:
    folder = PeerFolder.open(enrolled / "north")
    roster = folder.admit(files(enrolled))
    invited = PeerInvitation("north", folder.study(), roster)
    assert SiteLimits(1.0, coordinators=(roster.fingerprint,)).refusals(invited, "x") == []
    assert "the roster" in SiteLimits(1.0, coordinators=("0" * 32,)).refusals(invited, "x")[0]
    assert {"no coordinator", "roster", "study hash"} <= {label for label, _ in invited.rows()}


def test_an_account_may_publish_on_its_own_subject_and_read_the_log(enrolled: Path) -> None:
    folder = PeerFolder.open(enrolled / "north")
    identity = folder.study().identity
    roster = folder.admit(files(enrolled))
    accounts = cluster_accounts(identity, roster.keys, roster.servers)
    assert "users" not in accounts["log"]
    for name in NAMES:
        (user,) = accounts[f"peer_{name}"]["users"]
        own = f"privatile.{identity}.log.*.{name}"
        assert [subject for subject in user["permissions"]["publish"] if subject.startswith("privatile")] == [own]
        assert user["permissions"]["subscribe"] == [f"_INBOX_{name}.>"]
        # Who runs no server makes no stream: one that sends on what comes in could delete the log.
        assert (f"LOG.API.{MAKING}" in user["permissions"]["publish"]) == (name != "west")
    assert not [verb for verb in READING if "DELETE" in verb or "PURGE" in verb or "UPDATE" in verb]


def test_the_turn_to_propose_goes_round() -> None:
    for number in range(1, 8):
        delays = sorted(proposal_delay(place, number, 5) for place in range(5))
        assert delays == [0.0, 0.3, 0.6, 1.2, 2.4]
        assert proposal_delay(number % 5, number, 5) == 0.0
    assert max(proposal_delay(place, 3, 100) for place in range(100)) == 30.0


def test_a_logs_number_that_was_mistyped_is_refused(enrolled: Path) -> None:
    """It could not be taken back: a new log has a higher number."""
    folder = PeerFolder.open(enrolled / "north")
    folder.admit(files(enrolled))
    for number in ("1000001", str(10**26)):
        refused = call("peer", "recover", folder.path, "--epoch", number, "--yes")
        assert refused.exit_code == 2, refused.output
        assert "of at most 1,000,000; got" in refused.output
    assert recover(folder) == 1
