"""kill -9 under load: every acknowledged answer is counted, none twice, and each in its round."""

from __future__ import annotations

import os
import random
import socket
import ssl
import time
from collections import defaultdict
from pathlib import Path

import pytest

from privatile.run.run_file import RunStore
from privatile.survey.gateway import HEADERS
from privatile.survey.store import COUNTED, LATE, SurveyStore
from tests.survey.kit import make_survey
from tests.survey.processes import Crowd, GatewayProcess, gateway

pytestmark = [pytest.mark.process, pytest.mark.network, pytest.mark.faults]

KILLS = 100 if os.environ.get("PRIVATILE_LONG") else 3


def test_every_acknowledged_answer_is_counted_once_through_kills(tmp_path: Path) -> None:
    rng = random.Random(5)
    codes = 400 * (KILLS + 1)
    made = make_survey(tmp_path / "survey", strata={"a": codes // 4, "b": 3 * codes // 4}, round_answers=20)
    stratum = {code: int(k >= codes // 4) for k, code in enumerate(made.codes)}
    log = tmp_path / "log"
    rng.shuffle(shuffled := list(made.codes))
    crowd = Crowd(shuffled)
    running = GatewayProcess(made.folder.path, log, "--behind-proxy")
    try:
        crowd.address = (running.host, running.port)
        crowd.start(4)
        for _ in range(KILLS):
            # After some answers, however slow the machine is, and then at any moment.
            crowd.wait_for(rng.randrange(10, 50), seconds=20.0)
            time.sleep(rng.uniform(0.0, 0.05))
            running.kill()
            running = GatewayProcess(made.folder.path, log, "--behind-proxy")
            crowd.address = (running.host, running.port)
        time.sleep(0.3)
        crowd.end()
        assert running.stop() == 0
    finally:
        if running.process.poll() is None:
            running.kill()

    model: dict[int, list[list[int]]] = defaultdict(lambda: [[0, 0], [0, 0]])
    late = [0, 0]
    assert set(crowd.sent) == set(crowd.replies), "everybody has a reply in the end"
    for code, (number, bit) in crowd.sent.items():
        if crowd.replies[code]["counted"]:
            model[number][0][stratum[code]] += 1
            model[number][1][stratum[code]] += bit
        else:
            late[stratum[code]] += 1
    found: dict[int, list[list[int]]] = {}
    with RunStore.open(made.folder.run_file, read_only=True) as run:
        for one in run.rounds():
            found[one.round] = [list(one.ask.lengths), [ones or 0 for ones in one.ones]]
    digest = made.folder.study().digest
    with SurveyStore.open(made.folder.store_file, digest, 2, read_only=True) as store:
        state, counts, totals = store.round(), store.counts(), store.totals()
        found[state.number] = [[one.came for one in counts], [one.ones for one in counts]]
        assert store.late() == late
        assert sum(one[COUNTED] + one[LATE] for one in totals) == len(crowd.replies)
    assert {number: rows for number, rows in found.items() if sum(rows[0])} == dict(model)
    assert len(model) > KILLS, "rounds were closed meanwhile"
    repeats = sum("repeat" in reply for reply in crowd.replies.values())
    print(f"{KILLS} kills, {len(crowd.replies):,} answers, {len(model):,} rounds, {sum(late)} late, {repeats} repeats")


def replies_are_whole(secure: ssl.SSLSocket) -> None:
    """They have every header, and connections are kept, filled ahead and closed as HTTP says."""
    stream = secure.makefile("rb")

    def reply(body: bool = True) -> tuple[bytes, dict[str, str], bytes]:
        line, headers = stream.readline(), {}
        while (text := stream.readline().decode().strip()) and (part := text.partition(": "))[1]:
            assert part[0].lower() not in headers
            headers[part[0].lower()] = part[2]
        return line, headers, stream.read(int(headers["content-length"])) if body else b""

    def ask(method: str = "POST", more: str = "") -> bytes:
        body = '{"code": "AAAAAAAAAAAAAAAAAAAAAA"}' if method == "POST" else ""
        head = f"{method} /question HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        return (head + body).encode()

    for requests in (ask(), ask() + ask(), ask("GET") + ask()):
        secure.sendall(requests)
        for number in range(requests.count(b" /question")):
            line, headers, body = reply()
            refused = requests.startswith(b"GET") and number == 0
            assert line == (b"HTTP/1.1 405 Method Not Allowed\r\n" if refused else b"HTTP/1.1 404 Not Found\r\n")
            assert body == (b'{"error":"method"}' if refused else b'{"error":"unknown"}')
            assert {name.lower(): value for name, value in HEADERS.items()}.items() <= headers.items()
            assert {"date", "content-type", "cache-control"} < set(headers)
    secure.sendall(ask("HEAD") + ask(more="Connection: close\r\n"))
    assert reply(body=False)[0].startswith(b"HTTP/1.1 405")
    line, headers, _ = reply()
    assert (line[:12], headers["connection"]) == (b"HTTP/1.1 404", "close")
    assert stream.read() == b""


def test_the_gateway_stops_at_a_signal_and_writes_nothing_about_visitors(tmp_path: Path) -> None:
    """Over TLS, with a visitor who breaks off and one who speaks no HTTP."""
    made, log = make_survey(tmp_path / "survey"), tmp_path / "log"
    with gateway(made.folder.path, log) as running:
        trust_all = ssl.create_default_context()
        trust_all.check_hostname, trust_all.verify_mode = False, ssl.CERT_NONE
        ports = []
        for content in (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /question HTTP/1.1\r\n",
            b"\x00\x01 nonsense",
        ):
            with socket.create_connection((running.host, running.port)) as plain:
                ports.append(plain.getsockname()[1])
                with trust_all.wrap_socket(plain, server_hostname="localhost") as secure:
                    secure.sendall(content)
                    secure.settimeout(1.0)
                    if content.startswith(b"GET"):
                        assert b" 200 OK" in secure.recv(100)
        with socket.create_connection((running.host, running.port)) as plain:
            ports.append(plain.getsockname()[1])
            plain.sendall(b"no TLS at all\r\n\r\n")
            plain.settimeout(1.0)
            plain.recv(100)
        with (
            socket.create_connection((running.host, running.port)) as plain,
            trust_all.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            ports.append(secure.getsockname()[1])
            replies_are_whole(secure)
        assert running.stop() == 0
    said = log.read_text()
    own = ("survey ", "address ", "names ", "gateway ", "TLS ", "   ")
    told = [line for line in said.splitlines() if not line.startswith(own)]
    assert told in ([], ["Invalid HTTP request received."])
    assert not any(str(port) in said for port in ports)
