"""Who may look at a dashboard, by which names and from where; and that nobody can change anything."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import httpx
import pytest

from privatile.errors import InputError
from privatile.report.dashboard.app import make_app
from privatile.report.dashboard.serving import DashboardAddress, listen, run_dashboard
from tests.dashboard.served import LOCAL, PATIENCE, served, until

pytestmark = pytest.mark.network


def test_nothing_can_be_changed(finished: Path) -> None:
    with served(make_app(finished)) as client:
        for path in ("/", "/events", "/state.json", "/health", "/static/chart.js"):
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert client.request(method, path, headers=LOCAL).status_code == 405


def test_more_streams_than_viewers_allowed_are_refused_and_room_comes_back(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, everybody who could reach the page could hold connections without end."""
    monkeypatch.setattr("privatile.report.dashboard.app.MAX_VIEWERS", 2)
    app = make_app(finished)
    with served(app) as client, contextlib.ExitStack() as stack:
        streams = [stack.enter_context(client.stream("GET", "/events")).iter_bytes() for _ in range(2)]
        assert all(next(stream) for stream in streams)  # kept: a stream that is forgotten is closed
        refused = client.get("/events")
        assert (refused.status_code, "2 viewers" in refused.text) == (503, True)
        assert client.get("/state.json").status_code == 200
        stack.close()
        until = time.monotonic() + PATIENCE
        while app.state.feeds[0].viewers and time.monotonic() < until:
            time.sleep(0.01)
        with client.stream("GET", "/events") as again:
            assert again.status_code == 200


def test_requests_for_another_host_name_are_refused(finished: Path) -> None:
    with served(make_app(finished, host="dash.example")) as client:
        assert client.get("/state.json", headers={"host": "evil.example"}).status_code == 421
        assert client.get("/state.json", headers={"host": "dash.example:1"}).status_code == 200
        assert client.get("/state.json", headers={"host": "localhost:1"}).status_code == 200
        assert client.get("/state.json", headers={"host": "[::1]:1"}).status_code == 200
        for strange in ("localhost:evil.example", "localhost:99999", "[::1].evil.example", "localhost:80:evil.example"):
            assert client.get("/state.json", headers={"host": strange}).status_code == 421


def test_only_the_token_gives_access(finished: Path) -> None:
    token = "a-token-of-our-own"
    with served(make_app(finished, token=token)) as client:
        for path in ("/", "/events", "/state.json", "/health", "/static/chart.js"):
            assert client.get(path, headers=LOCAL).status_code == 401
        assert client.get("/?token=wrong", headers=LOCAL).status_code == 401
        assert client.get(f"/?token=wrong&token={token}", headers=LOCAL).status_code == 401
        assert client.get("/state.json", headers={**LOCAL, "authorization": f"Bearer {token}"}).status_code == 200
        assert client.get("/state.json", headers={**LOCAL, "authorization": "Bearer x"}).status_code == 401
        entered = client.get(f"/?token={token}", headers=LOCAL)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert client.get("/", headers={**LOCAL, "cookie": cookie.partition(";")[0]}).status_code == 200
        assert token not in client.get("/", headers={**LOCAL, "cookie": cookie.partition(";")[0]}).text


def test_addresses(tmp_path: Path) -> None:
    assert not DashboardAddress().needs_token
    with pytest.raises(InputError, match="needs TLS"):
        DashboardAddress(host="0.0.0.0")
    with pytest.raises(InputError, match="go together"):
        DashboardAddress(certificate=tmp_path / "cert.pem")
    with pytest.raises(InputError, match="port"):
        DashboardAddress(port=70_000)
    assert DashboardAddress(host="0.0.0.0", certificate=tmp_path / "c", key=tmp_path / "k").needs_token
    taken = listen(DashboardAddress())
    with pytest.raises(InputError, match="cannot listen"):
        listen(DashboardAddress(port=taken.getsockname()[1]))
    taken.close()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dashboard")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


def test_other_machines_need_tls_and_a_token(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ssl

    from privatile.report.dashboard import serving

    # The tests keep to the loopback address; the dashboard is made to believe that it is another one.
    monkeypatch.setattr(serving, "is_loopback", lambda host: False)
    cert, key = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    with (
        run_dashboard(finished, DashboardAddress(certificate=cert, key=key)) as page,
        httpx.Client(verify=trust, timeout=PATIENCE) as client,
    ):
        url, _, token = page.url.partition("?token=")
        assert url.startswith("https://127.0.0.1:")
        assert len(token) >= 32

        def refused() -> bool:
            try:
                return client.get(url + "state.json").status_code == 401
            except httpx.HTTPError:
                return False

        until(refused)
        assert client.get(page.url).status_code == 303  # the token becomes a cookie
        assert client.get(url).status_code == 200
        assert "Secure" in client.get(page.url).headers["set-cookie"]
        assert token not in Path(f"/proc/{page.process.pid}/cmdline").read_text()
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.replace("https", "http"))
