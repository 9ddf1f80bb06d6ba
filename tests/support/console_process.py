"""Consoles as processes, and clients that speak HTTP to them as a page does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.coordinator_programs import PROGRAM, _environment


@dataclass
class ConsoleProcess:
    """A console, its address, and an unused one-time link if it prints one."""

    process: subprocess.Popen[str]
    address: str
    link: str
    clients: list[httpx.Client] = field(default_factory=list)

    @property
    def token(self) -> str:
        return self.link.partition("#")[2]

    @property
    def origin(self) -> str:
        return self.address

    @property
    def local(self) -> str:
        """The address by which a test connects, whatever the console's name is."""
        return f"{self.address.partition(':')[0]}://127.0.0.1:{self.address.rpartition(':')[2]}"

    def client(self, **options: Any) -> httpx.Client:
        self.clients.append(httpx.Client(base_url=self.local, timeout=30, trust_env=False, **options))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def memory(self) -> float:
        """Resident memory in MB."""
        line = next(
            line for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if "VmRSS" in line
        )
        return int(line.split()[1]) / 1000


@dataclass
class Page:
    """A logged-in client."""

    client: httpx.Client
    csrf: str

    def get(self, path: str, **parameters: str) -> dict[str, Any]:
        found = self.client.get(path, params=parameters)
        assert found.status_code == 200, found.text
        document = found.json()
        assert isinstance(document, dict)
        return document

    def rows(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        rows = self.get(path, **parameters)["rows"]
        assert isinstance(rows, list)
        return rows

    def post(self, path: str, document: object = None, **headers: str) -> httpx.Response:
        given = {"X-CSRF-Token": self.csrf, "Origin": str(self.client.base_url).rstrip("/"), **headers}
        return self.client.post(path, json=document or {}, headers={name: one for name, one in given.items() if one})


def log_in(console: ConsoleProcess, token: str, **options: Any) -> Page:
    client = console.client(**options)
    reply = client.post("/api/login", json={"token": token}, headers={"Origin": console.origin})
    assert reply.status_code == 200, reply.text
    return Page(client, reply.json()["csrf"])


@contextmanager
def console_process(*options: str, port: int = 0) -> Iterator[ConsoleProcess]:
    command = [*PROGRAM, "console", "--json", "--port", str(port), *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=_environment()
    )
    try:
        assert process.stdout
        assert process.stderr
        line = process.stdout.readline()
        assert line, process.stderr.read()
        ready = json.loads(line)
        console = ConsoleProcess(process, ready["address"], ready["link"] or "")
        try:
            yield console
        finally:
            console.close()
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
