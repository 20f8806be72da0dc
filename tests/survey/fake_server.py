"""A small server of the survey's protocol that keeps everything it hears, and that tests turn against the device."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from privatile.core.mechanism import RandomizedResponse
from privatile.survey.page import page_files

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

Reply = tuple[int, Any, dict[str, str]]


class Heard(NamedTuple):
    """One request, whole."""

    method: str
    path: str
    headers: str
    body: str


class FakeSurvey:
    """Honest by default: every code is known, and counts once. Tests replace `facts`, `on_question`, `on_answer`."""

    def __init__(self, epsilon: float = 1.0) -> None:
        self.facts: dict[str, Any] = {
            "survey": "0123456789ab", "title": "What we earn", "value": "Monthly net salary", "unit": "€",
            "range": [0, 20_000], "scale": "linear", "level": 0.5, "lies_per_100": 27, "epsilon": epsilon,
            "threshold": str(RandomizedResponse.from_epsilon(epsilon).threshold), "languages": ["en", "de", "fr"],
            "page_sha256": "0" * 64, "state": "open",
        }  # fmt: skip
        self.round, self.query = 12, "2750.5"
        self.states: dict[str, str] = {}
        self.visits: dict[str, str] = {}
        """By which device a code's question was fetched first."""
        self.requests: list[Heard] = []
        self.more_headers: dict[str, str] = {}
        """Of every response."""
        self.on_question: Callable[[str], Reply | None] = lambda code: None
        self.on_answer: Callable[[dict[str, Any]], Reply | None] = lambda body: None
        self._lock = threading.Lock()

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What was posted to /answer, in order."""
        return [json.loads(heard.body) for heard in self.requests if heard.path == "/answer"]

    @property
    def questions(self) -> int:
        """How often a question was asked for."""
        return sum(heard.path == "/question" for heard in self.requests)

    def reply(self, heard: Heard) -> Reply:
        """What this survey answers."""
        with self._lock:
            self.requests.append(heard)
            if heard.path == "/survey.json":
                return 200, self.facts, {}
            if heard.path not in ("/question", "/answer") or heard.method != "POST":
                return 404, {"error": "unknown"}, {}
            body = json.loads(heard.body)
            code = body["code"]
            state = self.states.get(code, "free")
            if heard.path == "/question":
                if made := self.on_question(code):
                    return made
                if state == "spent":
                    return 409, {"error": "spent"}, {}
                self.states[code] = "handed"
                if state == "free":
                    self.visits[code] = body.get("visit", "")
                same = bool(body.get("visit")) and self.visits.get(code) == body["visit"]
                question = {"survey": self.facts["survey"], "round": self.round, "query": self.query}
                return 200, {**question, "handed_before": state == "handed" and not same}, {}
            if made := self.on_answer(body):
                return made
            self.states[code] = "spent"
            return 200, {"counted": True, **({"repeat": True} if state == "spent" else {})}, {}

    @contextmanager
    def serve(self, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
        """The survey's address, while it is served; with a certificate and its key over TLS."""
        survey, files = self, page_files()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: Any) -> None:
                pass

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                file = files.get(self.path.removeprefix("/"))
                heard = Heard(self.command, self.path, str(self.headers), body)
                if file is not None:
                    survey.requests.append(heard)
                    status, media, content, more = 200, file.media_type, file.body, dict[str, str]()
                else:
                    status, said, more = survey.reply(heard)
                    media, content = "application/json", json.dumps(said).encode()
                if status == 0:  # the connection is cut instead
                    self.close_connection = True
                    return
                self.send_response(status)
                headers = {
                    "Content-Type": media,
                    "Content-Length": str(len(content)),
                    "Content-Security-Policy": POLICY,
                }
                for name, text in {**headers, **survey.more_headers, **more}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _answer

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
