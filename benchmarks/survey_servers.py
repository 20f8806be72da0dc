"""The server that benchmarks/survey.py measures, on the first core: a survey's gateway."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from privatile.survey.folder import SurveyFolder, code_hash, new_code, new_survey
from privatile.survey.store import SurveyStore
from privatile.survey.study import Stratum, SurveyStudy, study_toml

HOST = "127.0.0.1"


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


def certificate_in(folder: Path) -> tuple[str, str]:
    from privatile.survey.serving import trial_certificate

    certificate, key = trial_certificate(folder)
    return str(certificate), str(key)


def serve(folder: SurveyFolder, tls: tuple[str, str], log: Path) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "privatile", "survey", "serve", str(folder.path), "--port", str(port)]
    return Server([*command, "--certificate", tls[0], "--key", tls[1]], port, log)
