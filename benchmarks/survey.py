"""How many durable answers a second a survey's gateway takes, beside a bare Starlette echo on the same two cores.

    python benchmarks/survey.py [--seconds 10] [--connections 200] [--turns 3]      answers, p99, new connections
    python benchmarks/survey.py --memory 1000000    memory with a million codes
    python benchmarks/survey.py --devices 100000    so many simulated devices
    python benchmarks/survey.py --arrivals 100 --seconds 60    late answers at 100 arrivals a second
    python benchmarks/survey.py … --save benchmarks/results/survey.json    what was measured, with date

The server has one core, the load generator the other. An answer is two requests, each durable before its reply: POST
/question and POST /answer. The ratio is answers over requests of the echo, measured in turns in the same run over
keep-alive TLS. New connections: one TLS handshake per answer (question and answer on the same connection).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import resource
import shlex
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privatile.core.mechanism import RandomizedResponse
from privatile.survey.codes import code_hash, new_code
from privatile.survey.folder import SurveyFolder, new_survey
from privatile.survey.store import SurveyStore
from privatile.survey.study import Stratum, SurveyStudy, study_toml

HOST = "127.0.0.1"
ROUND = 2_000
"""Answers per round while rates are measured: what the default rule gives once 100,000 have answered."""


def trust_all() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def make_survey(path: Path, codes: int, **changes: Any) -> tuple[SurveyFolder, list[str]]:
    """A survey without sheet and links: a million of them would take minutes."""
    path.mkdir(parents=True)
    folder = SurveyFolder(path)
    study = SurveyStudy(
        new_survey(), "Benchmark", "value", "", 1.0, (0.0, 100.0), strata={"all": Stratum(codes)}, **changes
    )
    issued = [new_code() for _ in range(codes)]
    folder.study_file.write_text(study_toml(study), encoding="utf-8")
    SurveyStore.create(folder.store_file, study.digest, 1, ((code_hash(code), 0) for code in issued))
    return folder, issued


# The echo that everything is compared with.


def echo_server(port: int, certificate: str, key: str) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def echo(request: Request) -> Response:
        return Response(await request.body(), media_type="application/json")

    app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
    uvicorn.run(
        app, host=HOST, port=port, log_level="error", access_log=False, ssl_certfile=certificate, ssl_keyfile=key
    )


class Server:
    """A server process on the first core."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self.port = port
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=lambda: use_core(0))
        give_up = time.monotonic() + 120.0
        while True:
            try:
                asyncio.run(one_connection(port))
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    raise RuntimeError(log.read_text()) from None
                time.sleep(0.05)

    def memory(self) -> float:
        """Resident megabytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        return math.nan

    def processor(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


async def one_connection(port: int) -> None:
    _, writer = await asyncio.open_connection(HOST, port, ssl=trust_all())
    writer.close()


def use_core(number: int) -> None:
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[number]})


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


# The load generator: HTTP/1.1 by hand, since a client library would take more of the core than the server.


class Line:
    """One keep-alive connection."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port, ssl=self._context)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        self._writer.write(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        length = int(head[at : head.index(b"\r\n", at)])
        return int(head[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


class Load:
    """What many connections did in some seconds."""

    def __init__(self) -> None:
        self.done, self.late, self.waits = 0, 0, 0
        self.times: list[float] = []


async def ask_echo(port: int, connections: int, seconds: float) -> Load:
    load, context, stop = Load(), trust_all(), time.monotonic() + seconds

    async def visitor() -> None:
        line = Line(port, context)
        await line.open()
        body = b'{"code": "AAAAAAAAAAAAAAAAAAAAAA", "round": 12, "answer": true}'
        while time.monotonic() < stop:
            began = time.perf_counter()
            await line.post("/echo", body)
            load.times.append(time.perf_counter() - began)
            load.done += 1
        line.close()

    await asyncio.gather(*(visitor() for _ in range(connections)))
    return load


async def take_part(
    line: Line,
    code: str,
    value: float,
    coins: RandomizedResponse,
    rng: random.Random,
    load: Load,
    *,
    wait: float = 0.02,
    delay: float = 0.0,
) -> None:
    """One device: ask, compare, draw, send. It waits `wait` while a round drains, and `delay` before it sends."""
    while True:
        began = time.perf_counter()
        status, body = await line.post("/question", b'{"code": "%s"}' % code.encode())
        load.times.append(time.perf_counter() - began)
        if status == 200:
            break
        if status != 503:
            raise RuntimeError(f"{status} {body!r}")
        load.waits += 1
        await asyncio.sleep(wait)
    asked = json.loads(body)
    truth = value > float(asked["query"])
    bit = truth if rng.getrandbits(64) < coins.threshold else not truth
    if delay:
        await asyncio.sleep(delay)
    began = time.perf_counter()
    text = b'{"code": "%s", "round": %d, "answer": %s}' % (code.encode(), asked["round"], b"true" if bit else b"false")
    status, body = await line.post("/answer", text)
    load.times.append(time.perf_counter() - began)
    if status != 200:
        raise RuntimeError(f"{status} {body!r}")
    load.done += 1
    load.late += b"false" in body


async def answer_survey(
    port: int, codes: Iterator[str], connections: int, seconds: float, *, new_connections: bool = False
) -> Load:
    load, context, stop = Load(), trust_all(), time.monotonic() + seconds
    coins = RandomizedResponse.from_epsilon(1.0)

    async def visitor(number: int) -> None:
        rng = random.Random(number)
        line = Line(port, context)
        if not new_connections:
            await line.open()
        for code in codes:
            if time.monotonic() >= stop:
                break
            if new_connections:
                await line.open()
            await take_part(line, code, rng.gauss(50.0, 15.0), coins, rng, load)
            if new_connections:
                line.close()
        line.close()

    await asyncio.gather(*(visitor(number) for number in range(connections)))
    return load


def disk_milliseconds(folder: Path) -> dict[str, float]:
    """How long the disk takes to make one page durable: what every commit waits for."""
    taken = []
    with (folder / "probe").open("wb") as file:
        for _ in range(200):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(1000.0 * (time.perf_counter() - began))
    return {"median": round(statistics.median(taken), 2), "mean": round(statistics.fmean(taken), 2)}


def p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))] * 1000.0


def certificate_in(folder: Path) -> tuple[str, str]:
    from privatile.survey.serving import trial_certificate

    certificate, key = trial_certificate(folder)
    return str(certificate), str(key)


def serve(folder: SurveyFolder, tls: tuple[str, str], log: Path) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "privatile", "survey", "serve", str(folder.path), "--port", str(port)]
    return Server([*command, "--certificate", tls[0], "--key", tls[1]], port, log)


def compare(work: Path, seconds: float, connections: int, turns: int) -> dict[str, Any]:
    """Answers and echoes in turns."""
    tls = certificate_in(work / "tls")
    folder, codes = make_survey(work / "survey", max(100_000, int(4_000 * seconds * (turns + 2))), round_answers=ROUND)
    left = iter(codes)
    script = Path(__file__).resolve()
    port = free_port()
    echo = Server([sys.executable, str(script), "--echo", str(port), *tls], port, work / "echo.log")
    gateway = serve(folder, tls, work / "gateway.log")
    use_core(1)
    rates: dict[str, list[float]] = {"echo": [], "answers": []}
    tails: dict[str, list[float]] = {"echo": [], "answers": []}
    costs: dict[str, list[float]] = {"echo": [], "answers": []}
    late = waits = 0
    try:
        for turn in range(turns + 1):
            for name, server in (("echo", echo), ("answers", gateway)):
                before = server.processor()
                if name == "echo":
                    load = asyncio.run(ask_echo(server.port, connections, seconds))
                else:
                    load = asyncio.run(answer_survey(server.port, left, connections, seconds))
                if turn:  # the first turn warms up
                    costs[name].append((server.processor() - before) / load.done)
                    rates[name].append(load.done / seconds)
                    tails[name].append(p99(load.times))
                    late, waits = late + load.late, waits + load.waits
        fresh = asyncio.run(answer_survey(gateway.port, left, 20, seconds, new_connections=True))
        memory = gateway.memory()
    finally:
        for server in (echo, gateway):
            server.stop()
    echo_cost, answer_cost = (1000.0 * statistics.median(costs[name]) for name in ("echo", "answers"))
    echo_rate, answer_rate = (statistics.median(rates[name]) for name in ("echo", "answers"))
    return {
        "connections": connections,
        "echo_per_second": round(echo_rate),
        "answers_per_second": round(answer_rate),
        "ratio": round(answer_rate / echo_rate, 3),
        "ratios": [round(a / e, 3) for e, a in zip(rates["echo"], rates["answers"], strict=True)],
        "server_processor_ms_of_an_echo": round(echo_cost, 3),
        "server_processor_ms_of_an_answer": round(answer_cost, 3),
        "p99_ms_of_a_request": round(statistics.median(tails["answers"]), 1),
        "p99_ms_of_an_echo": round(statistics.median(tails["echo"]), 1),
        "fsync_ms": disk_milliseconds(work),
        "late": late,
        "told_to_wait": waits,
        "answers_per_second_with_new_connections": round(fresh.done / seconds),
        "gateway_megabytes": round(memory),
    }


def measure_memory(work: Path, codes: int, seconds: float) -> dict[str, Any]:
    """The gateway's largest size with so many codes, while codes that exist and codes that do not are asked about."""
    tls = certificate_in(work / "tls")
    folder, issued = make_survey(work / "survey", codes)
    random.Random(1).shuffle(issued)
    gateway = serve(folder, tls, work / "gateway.log")
    use_core(1)

    async def guess(port: int) -> int:
        load, context, stop = Load(), trust_all(), time.monotonic() + seconds

        async def visitor() -> None:
            line = Line(port, context)
            await line.open()
            while time.monotonic() < stop:
                status, _ = await line.post("/question", b'{"code": "%s"}' % new_code().encode())
                load.done += status == 404
            line.close()

        await asyncio.gather(*(visitor() for _ in range(50)))
        return load.done

    try:
        before = gateway.memory()
        load = asyncio.run(answer_survey(gateway.port, iter(issued), 200, seconds))
        refused = asyncio.run(guess(gateway.port))
        return {
            "codes": codes,
            "megabytes_at_start": round(before),
            "megabytes_after_answers_and_guesses": round(gateway.memory()),
            "answers_per_second": round(load.done / seconds),
            "guesses_refused_per_second": round(refused / seconds),
        }
    finally:
        gateway.stop()


def run_devices(work: Path, devices: int, connections: int) -> dict[str, Any]:
    """So many devices through the real gateway, then the survey is closed: what came of it."""
    tls = certificate_in(work / "tls")
    folder, codes = make_survey(work / "survey", devices)
    gateway = serve(folder, tls, work / "gateway.log")
    use_core(1)
    began = time.monotonic()
    try:
        load = asyncio.run(answer_survey(gateway.port, iter(codes), connections, math.inf))
        taken = time.monotonic() - began
        subprocess.run([sys.executable, "-m", "privatile", "survey", "close", str(folder.path)], check=True)
        memory = gateway.memory()
    finally:
        gateway.stop()
    from privatile.survey.status import read_status

    facts = read_status(folder).facts
    if facts["answers"] + facts["late"] != devices:
        raise RuntimeError(f"{facts['answers']} counted and {facts['late']} late of {devices}")
    return {
        "devices": devices,
        "seconds": round(taken, 1),
        "answers_per_second": round(devices / taken),
        "counted": facts["answers"],
        "late": facts["late"],
        "late_share": facts["late"] / devices,
        "rounds": facts["rounds"],
        "told_to_wait": load.waits,
        "p99_ms_of_a_request": round(p99(load.times), 1),
        "true_median": 50.0,
        "interval": facts["interval"],
        "gateway_megabytes": round(memory),
    }


def run_arrivals(work: Path, rate: float, seconds: float) -> dict[str, Any]:
    """People who come at random times, each on a new connection, and answer after a mobile network's delay."""
    tls = certificate_in(work / "tls")
    folder, codes = make_survey(work / "survey", int(rate * seconds * 1.5) + 100)
    gateway = serve(folder, tls, work / "gateway.log")
    use_core(1)
    load, context, rng, coins = Load(), trust_all(), random.Random(1), RandomizedResponse.from_epsilon(1.0)

    async def person(code: str) -> None:
        line = Line(gateway.port, context)
        await line.open()
        delay = rng.lognormvariate(math.log(0.3), 0.7)
        await take_part(line, code, rng.gauss(50.0, 15.0), coins, rng, load, wait=1.0, delay=delay)
        line.close()

    async def everybody() -> None:
        came, until = [], time.monotonic() + seconds
        for code in codes:
            if time.monotonic() >= until:
                break
            came.append(asyncio.create_task(person(code)))
            await asyncio.sleep(rng.expovariate(rate))
        await asyncio.gather(*came)

    try:
        asyncio.run(everybody())
    finally:
        gateway.stop()
    return {
        "arrivals_per_second": round(load.done / seconds, 1),
        "answers": load.done,
        "late": load.late,
        "late_share": load.late / load.done,
        "told_to_wait": load.waits,
        "p99_ms_of_a_request": round(p99(load.times), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--memory", type=int, metavar="CODES")
    parser.add_argument("--devices", type=int, metavar="N")
    parser.add_argument("--arrivals", type=float, metavar="PER_SECOND")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--echo", nargs=3, metavar=("PORT", "CERTIFICATE", "KEY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        echo_server(int(options.echo[0]), *options.echo[1:])
        return
    with tempfile.TemporaryDirectory(prefix="survey-benchmark-") as folder:
        work = Path(folder)
        if options.memory:
            name, found = "memory", measure_memory(work, options.memory, options.seconds)
        elif options.arrivals:
            name, found = "arrivals", run_arrivals(work, options.arrivals, options.seconds)
        elif options.devices:
            name, found = "devices", run_devices(work, options.devices, options.connections)
        else:
            name, found = "rate", compare(work, options.seconds, options.connections, options.turns)
    found |= {
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "benchmarks/survey.py", *sys.argv[1:]]),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(found, indent=2))
    if options.save:
        kept = json.loads(options.save.read_text()) if options.save.exists() else {}
        options.save.write_text(json.dumps({**kept, name: found}, indent=2) + "\n")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    main()
