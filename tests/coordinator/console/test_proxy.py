"""Behind a proxy that authenticates operators: its header names the operator, and only it knows the secret."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.coordinator.console.conftest import Federation
from tests.support.console_process import ConsoleProcess, console_process
from tests.support.coordinator_programs import Programs
from tests.support.gates import until
from tests.support.ports import free_port

SECRET = "a-secret-that-only-the-proxy-knows-1"
NAME = "console.example.org"


@pytest.fixture(scope="module")
def secret_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("proxy") / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


def options(*identities: Path, secret: Path, address: str = "127.0.0.1") -> list[str]:
    named = [word for identity in identities for word in ("--identity", str(identity))]
    proxy = ["--trusted-proxy", address, "--proxy-user-header", "X-Remote-User", "--proxy-secret-file", str(secret)]
    return [*named, *proxy, "--name", NAME]


@pytest.fixture(scope="module")
def console(federation: Federation, engineer: Path, secret_file: Path) -> Iterator[ConsoleProcess]:
    with console_process(*options(federation.identity, engineer, secret=secret_file)) as found:
        yield found


def proxied(console: ConsoleProcess, user: str, secret: str | None = SECRET) -> httpx.Client:
    headers = {"Host": NAME, "X-Remote-User": user} | ({"X-Proxy-Secret": secret} if secret is not None else {})
    return console.client(headers=headers)


def test_its_header_names_the_operator(console: ConsoleProcess) -> None:
    ed = proxied(console, "ed")
    assert ed.get("/api/session").json()["operator"] == "ed"
    assert ed.get("/api/runs").status_code == 200
    for name in ("stranger", "", "operator, ed"):
        assert proxied(console, name).get("/api/session").status_code == 403
    other = proxied(console, "operator")
    other.cookies.update(ed.cookies)
    assert other.get("/api/runs").status_code == 401, "ed's cookie under another name is worth nothing"
    assert ed.post("/api/login", json={}, headers={"Origin": f"http://{NAME}"}).status_code == 400


@pytest.mark.parametrize("secret", [None, "", "guessed", SECRET[:-1], f"{SECRET}, {SECRET}", SECRET.upper()])
def test_a_local_program_that_does_not_know_the_secret_is_nobody(console: ConsoleProcess, secret: str | None) -> None:
    local = proxied(console, "operator", secret)
    for path in ("/", "/api/session", "/api/runs", "/api/audit"):
        assert local.get(path).status_code == 403
    reply = local.post("/api/runs/pilot/stop", json={}, headers={"Origin": f"http://{NAME}"})
    assert reply.status_code == 403
    admin = proxied(console, "operator")
    assert admin.get("/api/session").json()["role"] == "admin"
    local.cookies.update(admin.cookies)
    assert local.get("/api/runs").status_code == 403, "nor does a session help"


def test_another_address_with_the_secret_is_rejected(federation: Federation, engineer: Path, secret_file: Path) -> None:
    with console_process(*options(federation.identity, secret=secret_file, address="10.9.9.9")) as console:
        assert proxied(console, "operator").get("/api/session").status_code == 403


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (f"{SECRET}\n", 0o644, "has mode 644"),
        ("short", 0o600, "must hold 32 to 1024 letters, digits"),
        ("", 0o600, "must hold 32 to 1024 letters, digits"),
        (f"{SECRET}\n{SECRET}\n", 0o600, "must hold 32 to 1024 letters, digits"),
        (SECRET + "\x00", 0o600, "must hold 32 to 1024 letters, digits"),
    ],
    ids=["readable", "short", "empty", "two lines", "nul"],
)
def test_a_secret_that_is_none_is_rejected(
    federation: Federation, tmp_path: Path, content: str, mode: int, problem: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(content)
    file.chmod(mode)
    programs = Programs(federation.fleet.tmp, federation.fleet.stack)
    output = programs.command("console", *options(secret=file), "--port", "0", code=2)
    assert problem in output
    assert SECRET not in output


NGINX = """
daemon off; pid {directory}/pid; error_log {directory}/error.log; worker_processes 1;
events {{}}
http {{
  access_log off;
  client_body_temp_path {directory}/a; proxy_temp_path {directory}/b; fastcgi_temp_path {directory}/c;
  uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;
  server {{
    listen 127.0.0.1:{port};
    auth_basic "console";
    auth_basic_user_file {directory}/users;
    location / {{
      proxy_pass {console};
      proxy_set_header Host $host;
      proxy_set_header X-Remote-User $remote_user;
      include {directory}/secret.conf;
      proxy_buffering off;
    }}
  }}
}}
"""
HAPROXY = """
global
  setenv SECRET {secret}
defaults
  mode http
  timeout connect 5s
  timeout client 1m
  timeout server 1m
userlist operators
  user ed insecure-password {password}
  user operator insecure-password {password}
frontend console
  bind 127.0.0.1:{port}
  http-request auth unless {{ http_auth(operators) }}
  http-request set-header X-Remote-User %[http_auth_user]
  http-request set-header X-Proxy-Secret "%[env(SECRET)]"
  default_backend console
backend console
  server console {address}
"""
PASSWORD = "of the proxy"


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def nginx(directory: Path, console: ConsoleProcess, port: int) -> list[str]:
    (directory / "users").write_text(f"ed:{{PLAIN}}{PASSWORD}\noperator:{{PLAIN}}{PASSWORD}\n")
    (directory / "secret.conf").write_text(f"proxy_set_header X-Proxy-Secret {SECRET};\n")
    user = "user root;" if os.geteuid() == 0 else ""  # of its workers, which read the users
    (directory / "nginx.conf").write_text(user + NGINX.format(directory=directory, port=port, console=console.local))
    return ["nginx", "-c", str(directory / "nginx.conf"), "-e", str(directory / "error.log")]


def haproxy(directory: Path, console: ConsoleProcess, port: int) -> list[str]:
    address = console.local.partition("//")[2]
    password = PASSWORD.replace(" ", "\\ ")
    (directory / "haproxy.cfg").write_text(HAPROXY.format(secret=SECRET, password=password, port=port, address=address))
    return ["haproxy", "-db", "-f", str(directory / "haproxy.cfg")]


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    program = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    with subprocess.Popen([program, *command[1:]]) as process:
        try:
            until(lambda: process.poll() is not None or answers(port))
            assert process.poll() is None
            yield
        finally:
            process.terminate()


@pytest.mark.parametrize("proxy", [nginx, haproxy])
def test_a_real_proxy_logs_operators_in_and_its_headers_cannot_be_forged(
    console: ConsoleProcess, tmp_path_factory: pytest.TempPathFactory, proxy: Callable[..., list[str]]
) -> None:
    port = free_port()
    with running(proxy(tmp_path_factory.mktemp("proxy"), console, port), port):
        address = f"http://127.0.0.1:{port}"

        def browser(user: str, password: str = PASSWORD, **headers: str) -> httpx.Client:
            given = {"Host": NAME, **headers}
            return httpx.Client(base_url=address, auth=(user, password), headers=given, trust_env=False)

        with browser("ed") as ed, browser("ed", "wrong") as wrong:
            assert wrong.get("/api/session").status_code == 401
            assert ed.get("/api/session").json()["operator"] == "ed"
            assert ed.get("/api/runs").status_code == 200
        forged = {"X-Remote-User": "operator", "X-Proxy-Secret": "guessed"}
        with browser("ed", **forged) as liar:
            assert liar.get("/api/session").json()["operator"] == "ed"
        with httpx.Client(base_url=address, headers={"Host": NAME, **forged}, trust_env=False) as stranger:
            assert stranger.get("/api/session").status_code == 401
