"""A gateway in a process of its own, and visitors who reach it over HTTP from threads."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class GatewayProcess:
    """`privatile survey serve`, on any free port of this machine."""

    def __init__(self, folder: Path, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "privatile", "survey", "serve", str(folder), "--port", "0", *options]
        self._log = log
        start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(command, stdout=stderr, stderr=stderr)
        give_up = time.monotonic() + 30.0
        while True:
            said = log.read_bytes()[start:].decode()
            lines = [line.split()[1] for line in said.splitlines() if line.startswith("gateway ") and "://" in line]
            if lines:
                break
            assert self.process.poll() is None, said
            assert time.monotonic() < give_up, said
            time.sleep(0.02)
        parts = urlsplit(lines[0])
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextlib.contextmanager
def gateway(folder: Path, log: Path, *options: str) -> Iterator[GatewayProcess]:
    running = GatewayProcess(folder, log, *options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


@dataclass
class Crowd:
    """People who take part one after the other in several threads, and repeat whatever gets no reply."""

    codes: list[str]
    seed: int = 0
    address: tuple[str, int] | None = None
    sent: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """By code: the round and the bit that left the device."""
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    over: bool = False

    def start(self, threads: int) -> None:
        self._left = iter(self.codes)
        self._next = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(k,)) for k in range(threads)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, answers: int, seconds: float) -> None:
        """Until so many more have a reply, at most so long."""
        wanted, give_up = len(self.replies) + answers, time.monotonic() + seconds
        while len(self.replies) < wanted and time.monotonic() < give_up:
            time.sleep(0.005)

    def end(self) -> None:
        self.over = True
        self.join()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive()
        assert not self.trouble, self.trouble[0]

    def _run(self, number: int) -> None:
        rng = random.Random(self.seed * 1000 + number)
        connection: http.client.HTTPConnection | None = None
        connected_to: tuple[str, int] | None = None

        def post(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            nonlocal connection, connected_to
            while True:
                try:
                    if connection is None or connected_to != self.address:
                        connected_to = self.address
                        connection = http.client.HTTPConnection(*(connected_to or ("", 0)), timeout=5.0)
                    connection.request("POST", path, json.dumps(body))
                    reply = connection.getresponse()
                    return reply.status, json.loads(reply.read())
                except (OSError, http.client.HTTPException, ValueError):
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(0.02)

        try:
            while not self.over:
                with self._next:
                    code = next(self._left, None)
                if code is None:
                    return
                self._take_part(code, rng.random() < 0.5, post)
        except Exception as error:
            self.trouble.append(f"{type(error).__name__}: {error}")
        finally:
            if connection is not None:
                connection.close()

    def _take_part(self, code: str, bit: bool, post: Any) -> None:
        while True:
            status, asked = post("/question", {"code": code})
            if status == 200:
                break
            if status == 410:
                return
            assert status == 503, (status, asked)
            time.sleep(0.01)
        self.sent[code] = (asked["round"], bit)
        while True:
            status, reply = post("/answer", {"code": code, "round": asked["round"], "answer": bit})
            if status == 200:
                break
            assert status == 503, (status, reply)
            time.sleep(0.01)
        self.replies[code] = reply
