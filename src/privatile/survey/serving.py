"""The gateway's process: its folder, its address, TLS, and how it ends."""

import asyncio
import gc
import signal
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from privatile.client.ledger.file_systems import require_volume
from privatile.core.words import counted
from privatile.errors import InputError
from privatile.federation.run.lock import lock_folder
from privatile.federation.setup.certificates import broken_validity, issue_broker, make_authority, read_certificate
from privatile.server.open_rounds import Phase
from privatile.server.web import address, is_loopback, listen, make_server
from privatile.survey.folder import SurveyFolder
from privatile.survey.gateway import Gateway, Pages
from privatile.survey.page import PageFile, page_sha256
from privatile.survey.service import SurveyService

TRIAL_DAYS = 30
"""How long a certificate that the gateway makes itself is valid: it is for trying things on this machine."""

MOST_CONNECTIONS = 65_536

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
        service = SurveyService(folder, study)
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
        most = MOST_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, MOST_CONNECTIONS)
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
