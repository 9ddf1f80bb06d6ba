"""A real Triton process: the program and core from the package nvidia-pytriton.

What runs the models is `triton_backend.py`. Everything before and after that is Triton's own: repositories, configs,
versions, queues, batches, checks of requests, both protocols, metrics.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.gates import until
from tests.support.ports import free_ports
from tests.support.server_process import ROOT, Server, get

PACKAGE = "nvidia-pytriton==0.7.0"  # Triton 2.51
ENVIRONMENT = ROOT / "build" / "triton"  # kept from one time to the next
STUB = f"{sys.version_info.major}.{sys.version_info.minor}"
ATTEMPTS = 3  # at ports that nobody else takes meanwhile


def install() -> None:
    """Install Triton, or skip the test where it cannot run."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("nvidia-pytriton has Triton for Linux on x86-64 only")
    done = ENVIRONMENT / PACKAGE
    if not done.exists():
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        ended = subprocess.run(
            [*pip, "--target", str(ENVIRONMENT), PACKAGE], capture_output=True, text=True, check=False
        )
        if ended.returncode:
            pytest.skip(f"{PACKAGE} cannot be installed here: {ended.stderr.strip()[-300:]}")
        done.touch()
    stub = _program() / "python_backend_stubs" / STUB / "triton_python_backend_stub"
    if not stub.exists():
        pytest.skip(f"Triton has no stub for Python {STUB}")
    said = subprocess.run([str(stub)], capture_output=True, text=True, check=False, env=_environment()).stderr
    if "error while loading shared libraries" in said:
        pytest.skip(f"Triton's stub for Python {STUB} does not run here: {said.strip()}")


@contextmanager
def triton(repository: Path, work: Path, *options: str) -> Iterator[Server]:
    """Run Triton with these models without completing their configs; its log is in `work`."""
    install()
    backends = _backends(work / "backends")
    log_file = work / "triton.log"
    for attempt in range(1, ATTEMPTS + 1):
        server = _start(repository, backends, log_file, options)
        try:
            if _is_up(server):
                yield server
                return
            assert attempt < ATTEMPTS, server.log
        finally:
            _end(server)


def _program() -> Path:
    return ENVIRONMENT / "pytriton" / "tritonserver"


def _environment() -> dict[str, str]:
    """Return Triton's environment; its stub ignores PYTHONPATH, so the backend locates our packages itself."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    return os.environ | {
        "LD_LIBRARY_PATH": str(ENVIRONMENT / "nvidia_pytriton.libs"),
        "PACKAGES": os.pathsep.join(packages),
        "OMP_NUM_THREADS": "1",
    }


def _backends(directory: Path) -> Path:
    """Install Triton's "python" backend with the stub for our interpreter, and ours as "onnxruntime"."""
    shutil.copytree(_program() / "backends" / "python", directory / "python", dirs_exist_ok=True)
    shutil.copy(_program() / "python_backend_stubs" / STUB / "triton_python_backend_stub", directory / "python")
    (directory / "onnxruntime").mkdir(exist_ok=True)
    shutil.copy(Path(__file__).parent / "triton_backend.py", directory / "onnxruntime" / "model.py")
    return directory


def _start(repository: Path, backends: Path, log_file: Path, options: tuple[str, ...]) -> Server:
    ports = dict(zip(("grpc", "http", "metrics"), free_ports(3), strict=True))
    command = [
        str(_program() / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        *(f"--{name}-port={port}" for name, port in ports.items()),
        "--disable-auto-complete-config",
        "--pinned-memory-pool-byte-size=0",
        "--allow-gpu-metrics=false",
        f"--backend-config=python,shm-region-prefix-name={_shared_memory(log_file)}",
        "--exit-timeout-secs=1",
        *options,
    ]
    with log_file.open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, text=True, env=_environment(), start_new_session=True
        )
    return Server(process, log_file, {f"{name}_port": port for name, port in ports.items()})


def _shared_memory(log_file: Path) -> str:
    """Return the prefix of its shared memory's names."""
    return f"moonfed-{hashlib.sha256(str(log_file).encode()).hexdigest()[:16]}-"


def _is_up(server: Server) -> bool:
    """Wait until everything is loaded; return False if it has ended."""

    def answers() -> bool:
        with suppress(OSError):  # the metrics are the last service that it starts
            return get(f"127.0.0.1:{server.ports['metrics_port']}", "/metrics")[0] == 200
        return False

    until(lambda: server.process.poll() is not None or answers())
    return server.process.poll() is None


def _end(server: Server) -> None:
    """Stop it, then remove the processes and shared memory that it leaves if requests are in flight."""
    server.process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.process.wait(timeout=60)
    with suppress(ProcessLookupError):
        os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    for left in Path("/dev/shm").glob(f"{_shared_memory(server.log_file)}*"):
        left.unlink(missing_ok=True)
