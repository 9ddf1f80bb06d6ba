"""Inference servers as processes, started as an operator does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.support.forked_programs import ForkedPopen

PROGRAM = [sys.executable, "-c", "from moonfed.cli.program import main; main()", "serve"]
ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "common"), str(ROOT / "proto")])}
FREE_PORTS = ["--grpc-port", "0", "--http-port", "0", "--metrics-port", "0"]

# A request of such a model waits until as many are together, or for a time that no test takes.
WAITS_FOR_MORE = """
max_batch_size: 64
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{ preferred_batch_size: {together} max_queue_delay_microseconds: {microseconds} }}
"""
HOURS = 3_600_000_000


def waits_for(together: int, microseconds: int = HOURS) -> str:
    return WAITS_FOR_MORE.format(together=together, microseconds=microseconds)


@dataclass
class Server:
    process: subprocess.Popen[str]
    log_file: Path
    ports: dict[str, int]

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.ports['grpc_port']}"

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.ports['http_port']}"

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def metrics(self) -> str:
        return get(f"127.0.0.1:{self.ports['metrics_port']}", "/metrics")[1].decode()

    def waiting(self, model: str) -> int:
        """Return how many requests of a model are queued."""
        prefix = f'nv_inference_pending_request_count{{model="{model}"'
        return sum(int(float(line.split()[-1])) for line in self.metrics().splitlines() if line.startswith(prefix))

    def stop(self) -> int:
        """Send SIGTERM and wait for the process to end."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def reset_peak_memory(self) -> int:
        """Reset the peak of the process's memory, and return its present memory in bytes."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.memory()

    def memory(self, field: str = "VmRSS") -> int:
        """Return the process's memory in bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def served(repository: Path, log_file: Path, *options: str) -> AbstractContextManager[Server]:
    command = [*PROGRAM, str(repository), *FREE_PORTS, "--poll-seconds", "0", "--json", *options]
    return started(command, log_file)


def limited(repository: Path, log_file: Path, **settings: Any) -> AbstractContextManager[Server]:
    """Serve with any ServerSettings; `limits` cannot be set by options."""
    return started(
        [sys.executable, "-m", "tests.support.limited_server", str(repository), json.dumps(settings)], log_file
    )


@contextmanager
def started(command: list[str], log_file: Path) -> Iterator[Server]:
    with log_file.open("a") as log:
        process = ForkedPopen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=ENVIRONMENT)
    assert process.stdout
    with process.stdout:
        try:
            line = process.stdout.readline()
            assert line, log_file.read_text()
            yield Server(process, log_file, json.loads(line))
        finally:
            process.kill()
            process.wait()


def get(address: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """Return status and body of a GET, or of a POST if there is a body."""
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def answer_of(address: str, path: str, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return status and JSON of a POST with JSON."""
    status, body = get(address, path, json.dumps(document).encode())
    return status, json.loads(body)
