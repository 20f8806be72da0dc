"""Which nats-server is started: an old one on the PATH is passed over, and the operator is told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.errors import BrokerError, InputError
from privatile.federation.operations.serve import ServeOptions, serve_run
from privatile.federation.setup import broker
from privatile.federation.setup.broker import check_configuration, find_binary, is_new_enough
from privatile.federation.setup.check import check
from tests.federation.kit import Federation, make_study

pytestmark = pytest.mark.network

OLD = """#!/bin/sh
case "$1" in
  --version) echo "nats-server: v2.9.10" ;;
  *) echo "nats-server: $3:13:7: error parsing tls config, unknown field \\"min_version\\"" >&2
     echo "nats-server: $3:17:5: interface conversion: interface {} is string, not int64 (sync_interval)" >&2
     exit 1 ;;
esac
"""


@pytest.fixture
def old_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Debian's nats-server, as far as we meet it, alone on the PATH: that of this machine may hold another."""
    fake = tmp_path / "old" / "nats-server"
    fake.parent.mkdir()
    fake.write_text(OLD)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    return fake


def test_an_old_server_on_the_path_is_passed_over_and_another_started(
    old_server: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation(tmp_path, make_study(1, deadline=0.2))
    said: list[str] = []
    with pytest.raises(Exception, match="paused"):  # the broker runs; no client ever comes
        serve_run(federation.directory, ServeOptions(exit_when_paused=True, linger=0.0), said.append)
    (told,) = [record.getMessage() for record in caplog.records if "instead" in record.getMessage()]
    assert told.startswith(f"{old_server} is too old (nats-server: v2.9.10): ")
    started = next(line for line in said if "started" in line)
    assert str(old_server) not in started
    assert is_new_enough(started.partition("(")[2])
    assert started.split()[2] in told  # which one is used instead
    assert check(federation.directory).errors == []
    # Negative control: the old server itself refuses this configuration.
    with pytest.raises(BrokerError, match="sync_interval"):
        check_configuration(old_server, federation.directory.broker_files)


def test_with_an_old_server_alone_the_version_that_is_needed_is_named(
    old_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: "/nowhere")
    with pytest.raises(InputError, match=r"too old \(nats-server: v2\.9\.10\): nats-server 2\.10 or newer is needed"):
        find_binary()
    told = CliRunner().invoke(main, ["doctor"]).output
    assert "· nats-server" in told
    assert "2.10 or newer" in told


def test_a_broken_server_is_passed_over_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "nats-server"
    fake.write_text("#!/bin/sh\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_binary()
    assert found.path != fake
    assert found.passed_over == (f"{fake} does not run (CalledProcessError).",)


def test_a_free_port_is_none_that_outgoing_connections_get_and_never_the_same_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [broker.free_port() for _ in range(200)]
    assert len(set(found)) == len(found)
    assert set(found) <= set(range(1024, 32_768))  # where Linux begins, unless somebody has changed it
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(broker, "_CANDIDATES", iter([taken.getsockname()[1], found[0]]))
        assert broker.free_port() == found[0]
