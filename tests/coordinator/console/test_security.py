"""Attacks on a console over real HTTP; docs/security.md lists them with their outcomes."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moonfed.coordinator.console.attempts import OF_ADDRESS, OF_ALL, OF_ONE
from moonfed.coordinator.console.passwords import set_password
from moonfed.coordinator.console.settings import EVERYWHERE
from moonfed.observability.flood_log import LINES
from tests.coordinator.console.conftest import Federation
from tests.support.console_process import ConsoleProcess, Page, console_process, log_in

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"


def raw(console: ConsoleProcess, request: bytes) -> bytes:
    """Return the response to bytes that no client would send."""
    port = int(console.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_csrf_a_change_needs_the_sessions_token_and_the_consoles_origin(page: Page) -> None:
    path = "/api/runs/pilot/pause"
    assert page.post(path).status_code == 409  # served: the run has ended
    assert page.post(path, **{"X-CSRF-Token": "guessed"}).status_code == 403
    assert page.post(path, **{"X-CSRF-Token": ""}).status_code == 403
    assert page.post(path, Origin="http://evil.example").status_code == 403
    assert page.post(path, Origin="null").status_code == 403  # a sandboxed frame, or a form
    assert page.post(path, Origin="").status_code == 403
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert page.post(path, **form).status_code == 415
    assert page.client.get(path).status_code == 405
    assert page.client.get("/api/runs", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_framing_and_sniffing_are_forbidden_everywhere(page: Page) -> None:
    for path in ("/", "/static/app.js", "/api/runs", "/api/runs/none", "/nowhere", "/login"):
        headers = page.client.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../sessions.py",
        "/static/..%2fsessions.py",
        "/static/%2e%2e/%2e%2e/server.py",
        "/static/vendor/../../app.py",
        "/static//etc/passwd",
        "/static/..\\sessions.py",
        "/static/",
        "/static/index.html%00.js",
    ],
)
def test_path_traversal_finds_no_file(console: ConsoleProcess, path: str) -> None:
    host = console.address.partition("//")[2]
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    head, _, body = raw(console, request).partition(b"\r\n\r\n")
    assert head.split()[1] in (b"404", b"400")
    assert b"moonfed.coordinator" not in body
    assert b"root:" not in body


def test_session_fixation_a_login_has_a_new_identifier(federation: Federation) -> None:
    with console_process("--identity", str(federation.identity)) as console:
        name = f"moonfed-{console.address.rpartition(':')[2]}"
        planted = {name: "planted-by-the-attacker"}
        page = log_in(console, console.token, cookies=planted)
        issued = [cookie.value for cookie in page.client.cookies.jar if cookie.value != planted[name]]
        assert len(issued) == 1
        assert console.client(cookies=planted).get("/api/runs").status_code == 401
        assert console.client(cookies={name: str(issued[0])}).get("/api/runs").status_code == 200


def test_a_link_opens_one_session_only(federation: Federation) -> None:
    with console_process("--identity", str(federation.identity)) as console:
        log_in(console, console.token)
        again = console.client().post(
            "/api/login", json={"token": console.token}, headers={"Origin": console.origin}
        )  # fmt: skip
        assert again.status_code == 401
        assert "it was used already" in again.json()["error"]
        assert "set-cookie" not in again.headers


def test_brute_force_an_address_must_wait_even_with_the_right_password(federation: Federation, tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    set_password(file, "operator", PASSWORD)
    with console_process("--identity", str(federation.identity), "--password-file", str(file)) as console:
        client = console.client(headers={"Origin": console.origin})
        for number in range(OF_ONE):
            for name in ("operator", "nobody"):
                reply = client.post("/api/login", json={"operator": name, "password": f"guess {number}"})
                assert reply.status_code == 401
        reply = client.post("/api/login", json={"operator": "operator", "password": PASSWORD})
        assert reply.status_code == 429
        assert reply.json()["error"].startswith("too many failed logins; try again in ")
        assert int(reply.headers["retry-after"]) > 0
        forged = {"X-Forwarded-For": "10.9.9.9", "Forwarded": "for=10.9.9.9", "X-Real-IP": "10.9.9.9"}
        again = client.post("/api/login", json={"operator": "operator", "password": PASSWORD}, headers=forged)
        assert again.status_code == 429


@pytest.fixture
def with_passwords(federation: Federation, tmp_path: Path) -> Iterator[ConsoleProcess]:
    file = tmp_path / "passwords"
    set_password(file, "operator", PASSWORD)
    with console_process("--identity", str(federation.identity), "--password-file", str(file)) as found:
        yield found


def from_address(console: ConsoleProcess, address: str) -> httpx.Client:
    """A client with one of the addresses of this machine."""
    transport = httpx.HTTPTransport(local_address=address)
    return console.client(headers={"Origin": console.origin}, transport=transport)


RIGHT = {"operator": "operator", "password": PASSWORD}


def test_many_addresses_that_guess_lock_no_operator_out(with_passwords: ConsoleProcess) -> None:
    guessed = 0
    for number in range(13):
        guesser = from_address(with_passwords, f"127.0.1.{number + 1}")
        for name in ("operator", "operator", "operator", "operator", "operator", "operator", "nobody"):
            reply = guesser.post("/api/login", json={"operator": name, "password": "guessed"})
            guessed += reply.status_code == 401
            assert reply.status_code in (401, 429)
    assert 13 <= guessed <= OF_ALL + 13
    own = from_address(with_passwords, "127.0.2.1")
    assert own.post("/api/login", json=RIGHT).status_code == 200


def test_guesses_at_the_same_time_count_before_they_are_verified(with_passwords: ConsoleProcess) -> None:
    client = with_passwords.client(headers={"Origin": with_passwords.origin})

    def guess(_: int) -> int:
        return client.post("/api/login", json={"operator": "operator", "password": "guessed"}).status_code

    with ThreadPoolExecutor(16) as pool:
        assert sorted(pool.map(guess, range(40))) == [401] * OF_ONE + [429] * (40 - OF_ONE)


NO_TEXT = [
    rb'{"operator": "operator", "password": "\ud800"}',
    rb'{"operator": "\udfff", "password": "guessed"}',
    rb'{"token": "\ud800\ud800"}',
    rb'{"operator": "operator", "password": "a\u0000b"}',
    b'{"operator": "operator", "password": "\xed\xa0\x80"}',
    rb'{"operator": ["\ud800"], "password": "guessed"}',
    rb'{"operator": "operator", "password": "guessed", "\ud800": 1}',
    b'{"operator": "operator", "password": NaN}',
    b'{"operator": "operator", "password": 7}',
    b"[" * 60_000,
    b"\xff",
]


@pytest.mark.parametrize("content", NO_TEXT, ids=range(len(NO_TEXT)))
def test_logins_that_no_program_could_store_are_rejected_counted_and_logged_briefly(
    with_passwords: ConsoleProcess, content: bytes
) -> None:
    headers = {"Origin": with_passwords.origin, "Content-Type": "application/json"}
    client = with_passwords.client(headers=headers)
    for _ in range(2 * OF_ADDRESS):
        reply = client.post("/api/login", content=content)
        assert reply.status_code in (400, 429)
        assert len(reply.content) < 1000
    counted = [client.post("/api/login", json={"operator": name, "password": "x"}) for name in ("", "operator")]
    assert 429 in [reply.status_code for reply in counted]
    with_passwords.process.kill()
    assert with_passwords.process.stderr
    log = with_passwords.process.stderr.read()
    assert "Traceback" not in log
    assert len(log.splitlines()) <= 2 * LINES


@pytest.mark.parametrize("value", [rb'"\ud800"', rb'"a\u0000"', rb'["\udc00"]', rb'{"\ud800": 1}', b"NaN"])
@pytest.mark.parametrize("path", ["/api/models/digits/deploy", "/api/models/digits/widen", "/api/runs/pilot/pause"])
def test_no_action_takes_text_that_is_no_text(page: Page, path: str, value: bytes) -> None:
    content = b'{"version": 1, "labels": "", "percent": %s}' % value
    headers = {"X-CSRF-Token": page.csrf, "Origin": str(page.client.base_url).rstrip("/")}
    reply = page.client.post(path, content=content, headers=headers | {"Content-Type": "application/json"})
    assert reply.status_code == 400, reply.text


@pytest.mark.parametrize("value", [b"1e999", b"-1e999", b"9" * 400, b"true", b'"' + b"5" * 5000 + b'"'])
def test_no_action_takes_a_number_that_is_none(page: Page, value: bytes) -> None:
    headers = {"X-CSRF-Token": page.csrf, "Origin": str(page.client.base_url).rstrip("/")}
    content = b'{"percent": %s}' % value
    reply = page.client.post(
        "/api/models/digits/widen", content=content, headers=headers | {"Content-Type": "application/json"}
    )
    assert reply.status_code == 400, reply.text
    assert len(reply.content) < 400


@pytest.mark.parametrize("digits", [10, 20, 5000])
@pytest.mark.parametrize(
    ("path", "status"),
    [("/models/digits/{}", 404), ("/api/models/digits/{}", 405), ("/api/runs/pilot/rounds/{}/1", 404)],
)
def test_a_number_with_many_digits_is_no_page(page: Page, path: str, status: int, digits: int) -> None:
    assert page.client.get(path.format("9" * digits)).status_code == status
    assert page.client.get(path.format("1")).status_code == 200


def test_dns_rebinding_the_host_must_be_the_consoles(page: Page) -> None:
    for host in ("evil.example", "evil.example:8480", "127.0.0.1.evil.example", "127.0.0.1:1"):
        reply = page.client.get("/api/runs", headers={"Host": host})
        assert (reply.status_code, host in reply.text) == (421, True)
        assert page.post("/api/runs/pilot/stop", Host=host, Origin=f"http://{host}").status_code == 421


def test_a_doubled_or_missing_host_is_rejected(console: ConsoleProcess) -> None:
    host = console.address.partition("//")[2]
    for lines in (f"Host: {host}\r\nHost: evil.example\r\n", ""):
        reply = raw(console, f"GET /api/runs HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
        assert reply.split()[1] in (b"400", b"421")


def test_large_requests_end_early(console: ConsoleProcess) -> None:
    host = console.address.partition("//")[2]
    endless = b"GET / HTTP/1.1\r\nHost: " + host.encode() + b"\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"
    with contextlib.suppress(OSError):  # it may be closed while we are still sending
        assert raw(console, endless).split()[1] in (b"400", b"431")
    with console.client() as client:
        headers = {"Origin": console.origin, "Content-Type": "application/json"}
        large = client.post("/api/login", content=b" " * 70_000, headers=headers)
        assert large.status_code == 413
        assert client.get("/").status_code == 200


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of localhost, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    built = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    paths = directory / "certificate.pem", directory / "key.pem"
    paths[0].write_bytes(built.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )  # fmt: skip
    return paths


def test_over_tls_the_cookie_is_secure_and_plaintext_is_not_answered(federation: Federation, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    file = tmp_path / "passwords"
    set_password(file, "operator", PASSWORD)
    options = ("--host", EVERYWHERE[0], "--name", "localhost", "--tls-cert", str(cert), "--tls-key", str(key))
    identity = ("--identity", str(federation.identity))
    with console_process(*identity, *options, "--password-file", str(file)) as console:
        assert console.address.startswith("https://localhost:")
        trusted = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=console.address, verify=trusted, trust_env=False) as client:
            given = {"operator": "operator", "password": PASSWORD}
            reply = client.post("/api/login", json=given, headers={"Origin": console.address})
            assert reply.status_code == 200
            cookie = reply.headers["set-cookie"]
            assert cookie.startswith("__Host-moonfed=")
            for attribute in ("HttpOnly", "SameSite=strict", "Secure", "Path=/"):
                assert attribute in cookie
            assert reply.headers["strict-transport-security"] == "max-age=31536000"
            assert client.get("/api/runs").status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{console.address.rpartition(':')[2]}/", trust_env=False)
