"""Plant recognisable values, run, then search everything that was written: they must be nowhere but in the data."""

import gzip
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_estimate import here, privatile

pytestmark = pytest.mark.process

PLANTED = 48213.765625  # exact in binary, so every printer shows the same digits
TEXTS = (b"48213.765625", b"48213.76", b"48,213.76", b"4.8213765625e", b"4.82137656e")
BYTES = (struct.pack("<d", PLANTED), struct.pack(">d", PLANTED), struct.pack("<f", PLANTED))
BAD = "s3cr3t-row-5551234"


def everything_written(home: Path, data: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and path != data}


def check_nothing_leaked(written: dict[str, bytes]) -> None:
    for where, content in written.items():
        for needle in (*TEXTS, *BYTES, BAD.encode()):
            assert needle not in content, f"{needle!r} in {where}"
            assert needle.decode("latin1") not in where


def table(bad_row: bool) -> str:
    rng = np.random.default_rng(1)
    values = [f"{value:.4f}" for value in rng.normal(48_000, 500, 400)]
    values[10:30] = [str(PLANTED)] * 20
    if bad_row:
        values[350] = BAD
    return (
        "region,pay\n" + "\n".join(f"{'north' if i % 2 else 'south'},{value}" for i, value in enumerate(values)) + "\n"
    )


def write(home: Path, kind: str, bad_row: bool) -> Path:
    text = table(bad_row)
    rows = [dict(zip(("region", "pay"), line.split(","), strict=True)) for line in text.splitlines()[1:]]
    path = home / f"data.{kind}"
    if kind == "csv":
        path.write_text(text)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif kind == "json":
        entries = [{**row, "pay": row["pay"] if row["pay"] == BAD else float(row["pay"])} for row in rows]
        path.write_text("\n".join(json.dumps(entry) for entry in entries))
    else:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(rows)
        if not bad_row:
            frame["pay"] = frame["pay"].astype(float)
        frame.to_parquet(path)
    return path


OPTIONS = ("--value", "pay", "--client", "region", "--epsilon", 1, "--range", 1000, 90000, "--save", "run.db")


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "json", "parquet"])
def test_a_planted_value_is_nowhere_after_a_run(tmp_path: Path, kind: str) -> None:
    data = write(tmp_path, kind, bad_row=False)
    done = privatile(tmp_path, "estimate", data.name, *OPTIONS, "--json")
    assert done.returncode == 0, done.stderr
    written = everything_written(tmp_path, data)
    assert any(name.endswith("ledger.db") for name in written)
    assert any(name.endswith("run.db") for name in written)
    check_nothing_leaked({**written, "stdout": done.stdout.encode(), "stderr": done.stderr.encode()})


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "json", "parquet"])
def test_a_planted_bad_row_is_refused_without_being_shown(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path, kind, bad_row=True)
    # What a library prints past Python is caught too.
    done = (privatile if kind == "csv" else here)(tmp_path, "estimate", data.name, *OPTIONS)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    written = everything_written(tmp_path, data)
    said = {"stdout": done.stdout, "stderr": done.stderr, "past Python": "".join(capfd.readouterr())}
    check_nothing_leaked({**written, **{name: text.encode() for name, text in said.items()}})


# The command, with little memory, killed when the column is shuffled; all that it had on the disk by then is kept.
CRASH = r"""
import os, shutil, signal, sys
from privatile.api import division as api
from privatile.cli import main
from privatile.client.order import spill
shuffle = api.shuffle
def shuffle_and_crash(*arguments, **options):
    columns = shuffle(*arguments, memory_rows=100, **options)
    if os.environ.get("CRASH"):
        keep_copies()
        os.kill(os.getpid(), signal.SIGKILL)
    return columns
def keep_copies():
    for handle in os.listdir("/proc/self/fd"):
        link = f"/proc/self/fd/{handle}"
        if os.path.islink(link) and "(deleted)" in os.readlink(link):
            shutil.copyfile(link, f"spilled-{len(os.listdir('.'))}")
close = spill.SpillFile.close
def keep_and_close(self):
    if os.environ.get("CRASH"):
        keep_copies()
    close(self)
spill.SpillFile.close = keep_and_close
if os.environ.get("PLAIN"):
    spill.words_at = lambda key, start, count: 0
api.shuffle = shuffle_and_crash
main(sys.argv[1:])
"""


def spilling(home: Path, data: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (home / "tmp").mkdir(exist_ok=True)
    places = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "TMPDIR": "tmp"}
    env = {**os.environ, **{name: str(home / folder) for name, folder in places.items()}, **environment}
    command = [sys.executable, "-c", CRASH, "estimate", data.name, *map(str, OPTIONS), *options]
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are looked at through /proc")
@pytest.mark.parametrize("person", [(), ("--person", "who")])
def test_a_planted_value_is_nowhere_on_the_disk_after_a_crash_while_spilling(
    tmp_path: Path, person: tuple[str, ...]
) -> None:
    data = write(tmp_path, "csv", bad_row=False)
    lines = data.read_text().splitlines()
    data.write_text("\n".join([f"{lines[0]},who", *(f"{line},p{k}" for k, line in enumerate(lines[1:]))]) + "\n")
    crashed = spilling(tmp_path, data, *person, CRASH="1")
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    copies = sorted(tmp_path.glob("spilled-*"))
    # A tag and a value of each record; with people the order in which they were read besides, six words each.
    assert sum(path.stat().st_size for path in copies) >= 400 * (48 + 32 if person else 16)
    check_nothing_leaked(everything_written(tmp_path, data))
    resumed = spilling(tmp_path, data, *person, "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["results"][0]["records"] == 400
    written = everything_written(tmp_path, data)
    check_nothing_leaked({**written, "stdout": resumed.stdout.encode(), "stderr": resumed.stderr.encode()})


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are looked at through /proc")
def test_a_spill_file_that_hid_nothing_would_be_found(tmp_path: Path) -> None:
    """Negative control: the same crash with values as they are."""
    data = write(tmp_path, "csv", bad_row=False)
    spilling(tmp_path, data, CRASH="1", PLAIN="1")
    with pytest.raises(AssertionError, match="spilled-"):
        check_nothing_leaked(everything_written(tmp_path, data))


def test_the_search_itself_finds_what_it_looks_for(tmp_path: Path) -> None:
    """Negative control: a value in a file, in either form, or in a file's name is found."""
    for content in (f"q={PLANTED}".encode(), b"\0" + BYTES[0], BAD.encode()):
        with pytest.raises(AssertionError):
            check_nothing_leaked({"log": content})
    with pytest.raises(AssertionError):
        check_nothing_leaked({f"spill-{PLANTED}": b""})
