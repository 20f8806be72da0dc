"""How many durable answers a second a survey's gateway takes over TLS, and how long its visitors wait.

    python benchmarks/survey.py [--seconds 10] [--connections 200] [--turns 3]      answers, p99, new connections
    python benchmarks/survey.py --memory 1000000    memory with a million codes
    python benchmarks/survey.py --devices 100000    so many simulated devices
    python benchmarks/survey.py --arrivals 100 --seconds 60    p99 and late answers at 100 arrivals a second
    python benchmarks/survey.py … --save benchmarks/results/survey.json    what was measured, with date

The server has one core, the load generator the other. An answer is two requests, each durable before its reply: POST
/question and POST /answer. New connections: one TLS handshake per answer (question and answer on the same connection).
A question is kept up to half a second while a round closes, by design; connections and answers are not.
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
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from privatile.survey.folder import new_code

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script's own folder is on the path, this one is not
from benchmarks.survey_load import Device, Line, Load, answer_survey, devices, p99, play, request, take_part
from benchmarks.survey_servers import certificate_in, make_survey, serve, trust_all, use_core

ROUND = 2_000
"""Answers per round while rates are measured: what the default rule gives once 100,000 have answered."""


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


def measure_rate(work: Path, seconds: float, connections: int, turns: int) -> dict[str, Any]:
    """Answers over connections that are kept, in turns; then with a new connection each."""
    tls = certificate_in(work / "tls")
    folder, codes = make_survey(work / "survey", max(100_000, int(8_000 * seconds * (turns + 2))), round_answers=ROUND)
    left = iter(list(devices(codes)))
    gateway = serve(folder, tls, work / "gateway.log")
    use_core(1)
    rates, tails, costs = list[float](), list[float](), list[float]()
    late = waits = 0
    try:
        for turn in range(turns + 1):
            before = gateway.processor()
            load = play(answer_survey(gateway.port, left, connections, seconds))
            if turn:  # the first turn warms up
                costs.append((gateway.processor() - before) / load.done)
                rates.append(load.done / load.seconds)
                tails.append(p99(load.asked + load.answered))
                late, waits = late + load.late, waits + load.waits
        fresh = play(answer_survey(gateway.port, left, 20, seconds, new_connections=True))
        memory = gateway.memory()
    finally:
        gateway.stop()
    return {
        "connections": connections,
        "answers_per_second": round(statistics.median(rates)),
        "turns": [round(rate) for rate in rates],
        "server_processor_ms_of_an_answer": round(1000.0 * statistics.median(costs), 3),
        "p99_ms_of_a_request": round(statistics.median(tails), 1),
        "fsync_ms": disk_milliseconds(work),
        "late": late,
        "told_to_wait": waits,
        "answers_per_second_with_new_connections": round(fresh.done / fresh.seconds),
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
                status, _ = await line.exchange(request("/question", b'{"code": "%s"}' % new_code().encode()))
                load.done += status == 404
            line.close()

        await asyncio.gather(*(visitor() for _ in range(50)))
        return load.done

    try:
        before = gateway.memory()
        load = play(answer_survey(gateway.port, devices(issued), 200, seconds))
        refused = play(guess(gateway.port))
        return {
            "codes": codes,
            "megabytes_at_start": round(before),
            "megabytes_after_answers_and_guesses": round(gateway.memory()),
            "answers_per_second": round(load.done / load.seconds),
            "guesses_refused_per_second": round(refused / seconds),
        }
    finally:
        gateway.stop()


def run_devices(work: Path, people: int, connections: int) -> dict[str, Any]:
    """So many devices through the real gateway, then the survey is closed: what came of it."""
    tls = certificate_in(work / "tls")
    folder, codes = make_survey(work / "survey", people)
    gateway = serve(folder, tls, work / "gateway.log")
    use_core(1)
    ready = iter(list(devices(codes)))
    began = time.monotonic()
    try:
        load = play(answer_survey(gateway.port, ready, connections, math.inf))
        taken = time.monotonic() - began
        subprocess.run([sys.executable, "-m", "privatile", "survey", "close", str(folder.path), "--yes"], check=True)
        memory = gateway.memory()
    finally:
        gateway.stop()
    from privatile.survey.serving import read_status

    facts = read_status(folder).facts
    if facts["answers"] + facts["late"] != people:
        raise RuntimeError(f"{facts['answers']} counted and {facts['late']} late of {people}")
    return {
        "devices": people,
        "seconds": round(taken, 1),
        "answers_per_second": round(people / taken),
        "counted": facts["answers"],
        "late": facts["late"],
        "late_share": facts["late"] / people,
        "rounds": facts["rounds"],
        "told_to_wait": load.waits,
        "p99_ms_of_a_request": round(p99(load.asked + load.answered), 1),
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
    load, context, rng, opened = Load(), trust_all(), random.Random(1), list[float]()

    async def person(device: Device) -> None:
        line = Line(gateway.port, context)
        began = time.perf_counter()
        await line.open()
        opened.append(time.perf_counter() - began)
        delay = rng.lognormvariate(math.log(0.3), 0.7)
        await take_part(line, device, load, wait=1.0, delay=delay)
        line.close()

    async def everybody() -> None:
        # By the clock: on a busy machine sleeps take longer, and people would come more slowly.
        came, began, at = [], time.monotonic(), 0.0
        for device in devices(codes):
            at += rng.expovariate(rate)
            if at >= seconds:
                break
            await asyncio.sleep(max(began + at - time.monotonic(), 0.0))
            came.append(asyncio.create_task(person(device)))
        await asyncio.gather(*came)

    began = time.monotonic()
    try:
        play(everybody())
    finally:
        gateway.stop()
    return {
        "arrivals_per_second": round(load.done / seconds, 1),
        "seconds": round(time.monotonic() - began, 1),
        "answers": load.done,
        "late": load.late,
        "late_share": load.late / load.done,
        "told_to_wait": load.waits,
        "p99_ms_of_a_new_connection": round(p99(opened), 1),
        "p99_ms_of_an_answer": round(p99(load.answered), 1),
        "p99_ms_of_a_question": round(p99(load.asked), 1),
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="survey-benchmark-") as folder:
        work = Path(folder)
        if options.memory:
            name, found = "memory", measure_memory(work, options.memory, options.seconds)
        elif options.arrivals:
            name, found = "arrivals", run_arrivals(work, options.arrivals, options.seconds)
        elif options.devices:
            name, found = "devices", run_devices(work, options.devices, options.connections)
        else:
            name, found = "rate", measure_rate(work, options.seconds, options.connections, options.turns)
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
