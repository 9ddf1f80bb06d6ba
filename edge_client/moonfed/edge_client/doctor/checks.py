"""The checks of `moonfed-client doctor`. Each returns one `Check` and raises nothing."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Literal

from moonfed.available_memory import host_available, total_memory
from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.data.open_source import open_source
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.enrolment import read_identity
from moonfed.errors import MoonfedError, NotFound, Unavailable
from moonfed.sandbox.landlock import landlock_version
from moonfed.sandbox.messages import encode
from moonfed.sandbox.policy import available_level
from moonfed.sandbox.sandboxed_process import JobDirectory, Sandbox, sandboxed_process
from moonfed.sandbox.seccomp import seccomp_available
from moonfed.transport.diagnosis import explain_unavailable
from moonfed.transport.identity import Identity

TASK = "moonfed.edge_client.doctor.task"
Status = Literal["ok", "warning", "failed", "skipped"]
MINIMUM_TORCH = (2, 4)
LOW_MEMORY, LOW_DISK = 1 << 30, 2 << 30  # bytes
MARKS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED ", "skipped": "-      "}
SOON = timedelta(days=7)
CONNECT_SECONDS = 15.0
ONNX_RUNTIMES = frozenset({"onnxruntime", "onnxruntime-gpu"})  # packages of the same files
# y = -x for one float32, as ONNX (opset 17)
_GRAPH = (
    b'\x08\x08:2\n\x0b\n\x01x\x12\x01y"\x03Neg\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11"
)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    status: Status
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings:
    """The options of `run` that depend on the machine."""

    state: Path
    data: str = ""  # empty: not checked
    ignored_folders: Sequence[str] = ()  # of a folder of images
    accelerator: str = "cpu"
    proxy: str = ""


def checks(settings: DoctorSettings) -> Iterator[Check]:
    """Run all checks, one after the other; each takes milliseconds, or seconds if it imports torch."""
    identity = _identity(settings.state)
    named: tuple[tuple[str, Callable[[], tuple[Status, str]]], ...] = (
        ("sandbox", _sandbox),
        ("memory", _memory),
        ("disk", lambda: _disk(settings.state)),
        ("clock", lambda: _clock(identity)),
        ("torch", lambda: _torch(settings)),
        ("accelerator", lambda: _accelerator(settings)),
        ("onnxruntime", _onnxruntime),
        ("data", lambda: _data(settings)),
        ("certificate", lambda: _certificate(identity, settings.state)),
        ("coordinator", lambda: _coordinator(identity, settings.proxy)),
    )
    for name, check in named:
        try:
            status, detail = check()
        except MoonfedError as error:
            status, detail = "failed", str(error)
        except OSError as error:
            status, detail = "failed", f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except Exception as error:
            status, detail = "failed", f"{type(error).__name__}: {error}"
        yield Check(name, status, detail)


def _identity(state: Path) -> Identity | None:
    try:
        return read_identity(state)
    except MoonfedError:
        return None


def _sandbox() -> tuple[Status, str]:
    landlock = f"Landlock {landlock_version()}" if landlock_version() else "no Landlock"
    seccomp = "seccomp" if seccomp_available() else "no seccomp"
    level = available_level()
    advice = "" if level == "strict" else f"; a device refuses to train here without --sandbox {level}"
    return ("warning" if advice else "ok"), f"level {level}: {landlock}, {seccomp}{advice}"


def _memory() -> tuple[Status, str]:
    free, total = host_available(), total_memory()
    if free is None or total is None:
        return "skipped", "this system does not report its memory"
    status: Status = "warning" if free < LOW_MEMORY else "ok"
    limits = "within the limits of the machine and its control groups"
    return status, f"{free / 1e9:.1f} GB of {total / 1e9:.1f} GB are available {limits}"


def _disk(state: Path) -> tuple[Status, str]:
    directory = next(path for path in (state.absolute(), *state.absolute().parents) if path.is_dir())
    with TemporaryFile(dir=directory) as file:
        file.write(b"moonfed")
        os.fsync(file.fileno())
    free = shutil.disk_usage(directory).free
    return ("warning" if free < LOW_DISK else "ok"), f"{free / 1e9:.1f} GB are free below {directory}"


def _clock(identity: Identity | None) -> tuple[Status, str]:
    now = datetime.now(timezone.utc)
    if identity is None:
        return "skipped", f"{now:%Y-%m-%d %H:%M} UTC; a certificate is needed to compare it with"
    begins = identity.begins
    if now < begins:
        return "failed", f"{now:%Y-%m-%d %H:%M} UTC, but the certificate is valid only from {begins:%Y-%m-%d %H:%M}"
    return "ok", f"{now:%Y-%m-%d %H:%M} UTC"


def _torch(settings: DoctorSettings) -> tuple[Status, str]:
    """Import torch in the sandbox, in which plans run."""
    reported = _ask_sandbox("torch", settings)
    found = str(reported["version"])
    version = tuple(int(part) for part in found.split("+")[0].split(".")[:2])
    if version < MINIMUM_TORCH:
        return "failed", f"torch {found}; moonfed needs {'.'.join(map(str, MINIMUM_TORCH))} or later"
    return "ok", f"torch {found}, {reported['threads']} threads"


def _accelerator(settings: DoctorSettings) -> tuple[Status, str]:
    name = str(_ask_sandbox("accelerator", settings)["name"])
    return "ok", f"{settings.accelerator}{name and ': '}{name} multiplies matrices correctly"


def _ask_sandbox(question: str, settings: DoctorSettings) -> dict[str, Any]:
    """Have a new process in the sandbox execute a command of `doctor.task`."""
    sandbox = Sandbox(level=available_level(), accelerator=settings.accelerator)
    with TemporaryDirectory(prefix="moonfed-") as root:
        directory = JobDirectory(Path(root), settings.state)
        directory.clear()
        child = sandboxed_process(
            "moonfed.edge_client.doctor.task", {"accelerator": settings.accelerator}, sandbox, directory
        )
        try:
            answered = child.answer(encode(question), question, lambda _: True)
        finally:
            child.end()
    return answered or {}


def _onnxruntime() -> tuple[Status, str]:
    """Run a model of one operator with each provider."""
    if find_spec("onnxruntime") is None:
        return "skipped", "not installed; predictions then use plans"
    if {str(each.metadata["Name"]).replace("_", "-") for each in distributions()} >= ONNX_RUNTIMES:
        return "failed", f"{' and '.join(sorted(ONNX_RUNTIMES))} overwrite each other; uninstall both, then install one"
    import numpy as np
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)  # a provider whose libraries are missing is not an error here
    working = []
    for provider in onnxruntime.get_available_providers():
        try:
            session = onnxruntime.InferenceSession(_GRAPH, providers=[provider], enable_fallback=0)
            computed = session.run(None, {"x": np.array([2.0], np.float32)})[0]
        except Exception:  # noqa: S112 - its errors share no base class
            continue
        if session.get_providers()[0] == provider and float(computed[0]) == -2.0:
            working.append(provider.removesuffix("ExecutionProvider"))
    if not working:
        return "failed", f"onnxruntime {onnxruntime.__version__} runs a test model with none of its providers"
    return "ok", f"onnxruntime {onnxruntime.__version__} runs a test model with {', '.join(working)}"


def _data(settings: DoctorSettings) -> tuple[Status, str]:
    if not settings.data:
        return "skipped", "name it with --data"
    open_source(settings.data, ignored_folders=settings.ignored_folders).check()
    return "ok", settings.data


def _certificate(identity: Identity | None, state: Path) -> tuple[Status, str]:
    if identity is None:
        return "failed", f"{state} holds no identity; enrol this device: moonfed-client enrol TOKEN"
    identity.require_valid()
    left = identity.expires - datetime.now(timezone.utc)
    status: Status = "warning" if left < SOON else "ok"
    return status, f"{identity.name}, valid until {identity.expires:%Y-%m-%d %H:%M} UTC"


def _coordinator(identity: Identity | None, proxy: str) -> tuple[Status, str]:
    """Ask for a blob that cannot exist: an answer shows that the coordinator knows this device."""
    if identity is None:
        return "skipped", "this device is not enrolled"
    connection = FleetConnection(identity.address, identity.name, identity, proxy=proxy)
    expired = threading.Event()
    timer = threading.Timer(CONNECT_SECONDS, expired.set)
    timer.start()
    try:
        with TemporaryDirectory() as directory:
            connection.fetch(BlobRef("0" * 64, 1), BlobDirectory(Path(directory)), lambda: not expired.is_set())
    except NotFound:
        return "ok", f"{identity.address} answers"
    except Unavailable:
        return "failed", str(explain_unavailable(identity.address, identity, proxy))
    finally:
        timer.cancel()
        connection.close()
    return "failed", f"{identity.address} answers, but not like a coordinator"


def line(check: Check) -> str:
    """Return a check as a line of the report."""
    return f"{check.name:<12} {MARKS[check.status]}  {check.detail}"


def healthy(found: Sequence[Check]) -> bool:
    """Return whether the device can participate: no check failed."""
    return all(check.status != "failed" for check in found)


def document(found: Sequence[Check]) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {"healthy": healthy(found), "checks": [asdict(check) for check in found]}
