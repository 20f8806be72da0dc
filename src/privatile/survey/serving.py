"""The gateway's process: its folder, address, TLS, and how it ends; a survey as seen from outside while it writes.

A survey is ended by command through the gateway where one runs, by itself where none does.
"""

import asyncio
import gc
import shlex
import signal
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from privatile.core.file_systems import require_volume
from privatile.core.text import counted, duration
from privatile.errors import InputError, StoreError
from privatile.run.certificates import broken_validity, issue_broker, make_authority, read_certificate
from privatile.run.coordinator import Coordinator
from privatile.run.locks import lock_folder
from privatile.run.rounds import Phase, end_reached
from privatile.run.run_file import RunStore
from privatile.run.state import Alarm
from privatile.run.tables import running_process
from privatile.run.web import address, is_loopback, listen, make_server
from privatile.survey.folder import SurveyFolder
from privatile.survey.gateway import Gateway, Pages
from privatile.survey.page import PageFile, page_sha256
from privatile.survey.record import has_result, nothing_to_release
from privatile.survey.service import SurveyService, live_facts, organiser_facts, round_rule
from privatile.survey.store import SurveyStore


def what_closing_ends(folder: SurveyFolder) -> str | None:
    """What would end for good, in words; none where the survey is closed, or its stated end is reached."""
    study = folder.study()
    with SurveyStore.open(folder.store_file, study.digest, len(study.strata), read_only=True) as store:
        state = store.round()
    if state.phase is Phase.CLOSED or state.ending or end_reached(round_rule(study), state, time.time()):
        return None
    ends = [study.end_date] if study.end_date else []
    ends += [f"{study.end_answers:,} counted answers"] if study.end_answers else []
    ends += [f"an interval of width {study.end_width:g}"] if study.end_width else []
    stated = f"the survey's end is {' or '.join(ends)}" if ends else "the survey has no stated end"
    return f"{counted(state.counted_before + state.came, 'answer')}; {stated}; closing is for good."


def close_survey(folder: SurveyFolder, wait: float = 30.0) -> str:
    """End the survey after the open round; what to tell people.

    With a gateway running the round drains as usual, at most `wait` seconds beyond its grace time.
    """
    study = folder.study()
    with SurveyStore.open(folder.store_file, study.digest, len(study.strata), read_only=True) as store:
        if store.round().phase is Phase.CLOSED:
            return "The survey was closed already."
        folder.close_request.touch()
        if running_process(folder.pid_file) is None:
            try:
                with lock_folder(folder.pid_file, "gateway"):
                    asyncio.run(_close_alone(folder))
            except StoreError:
                # Asked for again once the files are in order: the next gateway should not close by surprise.
                folder.close_request.unlink(missing_ok=True)
                raise
        give_up = time.monotonic() + study.grace + wait
        while store.round().phase is not Phase.CLOSED:
            if time.monotonic() > give_up:
                raise StoreError(
                    f"the gateway has not closed the survey within {study.grace + wait:.0f} s; it will as soon as it "
                    "can. Look at it with `privatile status`."
                )
            time.sleep(0.1)
    path = shlex.quote(str(folder.path))
    if not folder.run_file.exists() or not has_result(folder):
        why = nothing_to_release(study)
        return f"The survey is closed. {why[0].upper()}{why[1:]} What came: privatile status {path}"
    return f"The survey is closed. Its result: privatile status {path}. Publish it: privatile survey release {path}"


async def _close_alone(folder: SurveyFolder) -> None:
    """Close without a gateway: nobody can answer meanwhile, so nobody is waited for."""
    service = SurveyService(folder)
    await service.start(follow=False)
    try:
        service.intake.awaited = set()
        await service.look()
    finally:
        await service.stop()


MAX_STRATA_SHOWN = 20


@dataclass(frozen=True)
class SurveyStatus:
    """A survey from outside; nothing in it tells who answered what."""

    facts: dict[str, Any]
    """As on the organiser's page."""
    process: int | None
    """The gateway's process; none where none runs."""
    since: float
    """Seconds that the open round has been in its phase."""

    @property
    def is_over(self) -> bool:
        """Whether nobody is asked any more."""
        return bool(self.facts["state"] == "closed")

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.facts, "process": self.process}

    def to_text(self) -> str:
        """A few lines for people."""
        facts, now = self.facts, self.facts["open_round"]
        goes_on = facts["state"] != "closed"
        running = f", process {self.process}" if self.process else ", no gateway running"
        rows = [
            ("survey", facts["title"]),
            ("state", f"{facts['state']}{running}" + (f", ended by {facts['ended']}" if facts["ended"] else "")),
            (
                "answers",
                f"{facts['answers']:,} counted in {counted(facts['rounds'], 'closed round')}, {facts['late']:,} late",
            ),
        ]
        if goes_on:
            planned = f"{now['answers']:,} of {now['planned']:,} planned answers"
            rows.append(("open round", f"{now['number']:,}, {now['state']} for {duration(self.since)}: {planned}"))
        if facts["restored"]:
            times = counted(facts["restored"], "time")
            rows.append(("restored", f"{times} from a backup: later answers are lost, and everybody since was warned"))
        rows += [("ALARM", text) for text in facts["alarms"]]
        if facts["sentence"]:
            rows.append(("so far" if goes_on else "result", facts["sentence"]))
        elif goes_on:
            least, most = facts["first_interval_after"], facts["most_answers"]
            few = f"; this survey can have {most:,} at most" if most < least else ""
            rows.append(("so far", f"no interval yet: it takes at least about {least:,} answers{few}"))
        rows += [("note", text) for text in facts["caveats"]]
        for one in facts["strata"][:MAX_STRATA_SHOWN]:
            codes = f"{one['spent']:,} of {one['codes']:,} codes spent, {one['handed']:,} with a question and no answer"
            rows.append(("stratum", f"{one['name']}, weight {one['weight']:.4g}: {codes}"))
        if len(facts["strata"]) > MAX_STRATA_SHOWN:
            rows.append(("stratum", f"and {len(facts['strata']) - MAX_STRATA_SHOWN:,} more"))
        return "\n".join(f"{name:<12} {text}" for name, text in rows)


def read_status(folder: SurveyFolder) -> SurveyStatus:
    """Read both files of a survey."""
    study, process = folder.study(), running_process(folder.pid_file)
    with ExitStack() as opened:
        run = None
        if folder.run_file.exists() and not RunStore.is_blank(folder.run_file):
            run = Coordinator(opened.enter_context(RunStore.open(folder.run_file, read_only=True)))
        codes = SurveyStore.open(folder.store_file, study.digest, len(study.strata), read_only=True)
        store = opened.enter_context(codes)
        state, alarms = store.round(), []
        if process is None and state.phase is not Phase.CLOSED:
            text = "no gateway takes answers; start it with `privatile survey serve`"
            alarms.append(Alarm("stopped", None, state.since, text))
        live = live_facts(study, state, run, store.late(), store.about().created)
        facts = organiser_facts(study, live, state, store, alarms)
    return SurveyStatus(facts, process, time.time() - state.since)


TRIAL_DAYS = 30
"""How long a certificate that the gateway makes itself is valid: it is for trying things on this machine."""

MAX_CONNECTIONS = 65_536

TLS_TIMES = {"ssl_handshake_timeout": 10.0, "ssl_shutdown_timeout": 10.0}
"""Seconds within which a visitor must begin and end TLS; by itself an event loop waits 60 and 30."""

COLLECT_AFTER = 10_000
"""Objects after which cycles are looked for: two hundred requests under way have some thousands, and with Python's own
700 they would be looked through all the time."""

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class GatewayAddress:
    """Where the gateway listens. Beyond this machine it needs a certificate: a code must not travel in the open."""

    host: str = "127.0.0.1"
    port: int = 8443
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    """Plain HTTP for a proxy on this machine that ends TLS."""
    names: tuple[str, ...] = ()
    """Names by which visitors reach it."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"the gateway's port must lie in 0 to 65535; got {self.port}. 0 takes any free one.")
        if (self.certificate is None) != (self.key is None):
            raise InputError("a certificate and its key go together: give --certificate and --key, or neither.")
        if self.behind_proxy and self.certificate is not None:
            raise InputError("behind a proxy that ends TLS the gateway needs no certificate: leave out one of the two.")
        if self.behind_proxy and not is_loopback(self.host):
            raise InputError(
                f"behind a proxy the gateway speaks plain HTTP, and so on this machine only; got {self.host!r:.60}. "
                "Leave --host out and let the proxy forward to 127.0.0.1."
            )
        if self.certificate is None and not self.behind_proxy and not is_loopback(self.host):
            raise InputError(
                f"the gateway would be open to other machines at {self.host}: that needs a certificate that their "
                "browsers trust. Give --certificate and --key, or --behind-proxy."
            )

    def url(self, bound: socket.socket) -> str:
        """Where it can be reached on this machine."""
        scheme = "http" if self.behind_proxy else "https"
        return f"{scheme}://{address(self.host, bound.getsockname()[1])}/"


def trial_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine's own names; its file and its key. One that is there and valid stays.

    Its authority, `authority.pem` beside it, is known to nobody: programs on this machine may be told to trust it.
    """
    authority, authority_key = folder / "authority.pem", folder / "authority.key"
    certificate, key = folder / "gateway.pem", folder / "gateway.key"
    if not certificate.exists() or broken_validity(read_certificate(certificate), "it"):
        folder.mkdir(mode=0o700, exist_ok=True)
        for file in (authority, authority_key, certificate, key):
            file.unlink(missing_ok=True)
        make_authority(authority, authority_key, "survey on trial")
        issue_broker(authority, authority_key, certificate, key, LOCAL_NAMES, days=TRIAL_DAYS)
    return certificate, key


def leads_elsewhere(links: str, port: int) -> bool:
    """Whether the survey's links lead to this machine, but to another port than the gateway's.

    >>> leads_elsewhere("https://localhost:8443/", 8443), leads_elsewhere("https://localhost:8443/", 9000)
    (False, True)
    >>> leads_elsewhere("https://survey.example.org/", 8443)  # a proxy may forward it
    False
    """
    parts = urlsplit(links)
    return parts.hostname in LOCAL_NAMES and (parts.port or 443) != port


def serve_survey(
    folder: SurveyFolder,
    address: GatewayAddress,
    say: Callable[[str], None],
    *,
    files: Mapping[str, PageFile] | None = None,
    pages: Pages | None = None,
    restored: bool = False,
) -> None:
    """Serve a survey until a signal ends the process; what is under way is answered first.

    `restored` declares that the folder's files come from a backup (`mark`).
    """
    study = folder.study()
    require_volume(folder.store_file, "the survey's file")
    if files and study.page_sha256 not in ("", page_sha256()):
        raise InputError(
            f"the study names a page with the hash {study.page_sha256[:16]}…, and this privatile has one with the hash "
            f"{page_sha256()[:16]}…: visitors would see another page than was printed. Serve it with the version that "
            "made the survey."
        )
    with lock_folder(folder.pid_file, "gateway"), ExitStack() as stack:
        settings: dict[str, Any] = {}
        if not address.behind_proxy:
            certificate, key = address.certificate, address.key
            if certificate is None or key is None:
                certificate, key = trial_certificate(folder.trial)
                say("TLS         a certificate made for this machine alone; browsers will warn. For visitors give")
                say("            --certificate and --key, or --behind-proxy")
            elif wrong := broken_validity(
                read_certificate(certificate), "the gateway's certificate", cure="have it issued again"
            ):
                raise InputError(wrong[0])
            _require_pair(certificate, key)
            settings = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
        bound = stack.enter_context(listen(address.host, address.port, page="the gateway", patience=2.0))
        service = SurveyService(folder)
        names = {*address.names, urlsplit(study.address).hostname or ""} - {""}
        app = Gateway(service, host=address.host, names=frozenset(names), files=files, pages=pages)
        server = make_server(
            app,
            "survey",
            lifespan="off",
            ws="none",
            proxy_headers=False,
            date_header=True,
            backlog=1024,
            timeout_graceful_shutdown=5,
            log_config=None,
            **settings,
        )
        say(f"survey      {study.title}, {counted(study.codes, 'code')}, study {study.digest[:16]}")
        if study.address:
            say(f"address     {study.address}  <- in the links and on the cards")
            if leads_elsewhere(study.address, bound.getsockname()[1]):
                say("            ^ links lead to another port than this gateway's: start it with that --port, or")
                say("            make the survey with --address")
        say(f"names       {', '.join([*sorted(names), 'this machine itself'])}; visitors who use another are refused")
        if restored:
            say("restored    from a backup: every code that was free counts as handed out, and people are warned")
        _allow_connections()
        where = f"gateway     {address.url(bound)}"
        if address.behind_proxy:
            where += " (plain HTTP, for the proxy on this machine that ends TLS)"
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(_run(service, server, bound, restored, lambda: _say_ready(service, where, say)))


def _say_ready(service: SurveyService, where: str, say: Callable[[str], None]) -> None:
    if service.state.phase is Phase.CLOSED:
        say("state       the survey is closed: no answer is taken; the pages show its result")
    say(where)


def _require_pair(certificate: Path, key: Path) -> None:
    """Refuse a key that cannot be read, or that is another certificate's, before anything says that it is served."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError:
        raise InputError(f"{key}: this is not the private key (PEM) of the certificate {certificate}.") from None
    except OSError as error:
        raise InputError(f"{key}: the key cannot be read ({type(error).__name__}).") from None


def _no_password() -> str:
    raise InputError("the gateway's key is locked with a password: give --key a file without one.")


def _allow_connections() -> None:
    """As many open connections as the system lets this user have."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, MAX_CONNECTIONS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _run(
    service: SurveyService, server: Any, bound: socket.socket, restored: bool, ready: Callable[[], None]
) -> None:
    """Open the files, say that it is `ready`, and serve until SIGINT or SIGTERM.

    Then no new connection is taken, what is under way is answered, and the files are closed. The same where another
    process has become the writer of the survey's file; that is raised.
    """
    loop = asyncio.get_running_loop()
    # The default handler would write what it knows of a connection that broke.
    loop.set_exception_handler(lambda loop, context: None)
    await service.start(restored=restored)
    # What is there now stays: the collector need not look at it again. Requests leave few cycles behind.
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    try:
        # uvicorn would raise a signal again at the end of `serve`, before the files are closed.
        server.capture_signals = nullcontext
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, setattr, server, "should_exit", True)
        service.on_superseded = lambda: setattr(server, "should_exit", True)
        if server.config.is_ssl:
            # uvicorn has no setting for it, and this loop has no other server.
            setattr(loop, "create_server", partial(loop.create_server, **TLS_TIMES))  # noqa: B010
        ready()
        await server.serve(sockets=[bound])
    finally:
        await service.stop()
    if service.superseded is not None:
        raise service.superseded
