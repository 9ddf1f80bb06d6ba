"""The agent: the long-lived process that `moonfed-client run` execs, with its settings in the environment.

The command line execs this program because typer would cost 19 MB of memory. The agent imports neither torch nor
numpy; only the training worker does. Nor does it import what gRPC and importlib.metadata bring along.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from moonfed.command_line.programs import INTERRUPTED, errors_as_exit_codes
from moonfed.directory_lock import directory_lock
from moonfed.edge_client.agent.flood_filter import FloodFilter
from moonfed.edge_client.agent.grpc_import import import_grpc
from moonfed.edge_client.agent.process_title import set_process_title
from moonfed.edge_client.settings import DeviceSettings
from moonfed.edge_client.state.round_store import writing
from moonfed.edge_client.state.state_version import note_version
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import NotFound, WrongState
from moonfed.labels import SANDBOX_LABEL
from moonfed.observability import logs
from moonfed.observability.tracing import exporting
from moonfed.printable import printable
from moonfed.sandbox.policy import require_unreadable

if TYPE_CHECKING:
    from moonfed.edge_client.agent.connection import FleetConnection
    from moonfed.edge_client.agent.device_metrics import DeviceMetrics

NAME = "moonfed-client"


def main() -> None:
    """Stay online until a signal or a final error."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are reported by us, once
    os.umask(0o077)  # models and samples are for this user alone; the worker inherits it
    with errors_as_exit_codes(NAME):
        settings = DeviceSettings.from_environment()
        logs.configure_logs(settings.log_format, settings.log_level, _OneLine(logs.TEXT))
        for handler in logging.getLogger().handlers:
            handler.addFilter(FloodFilter())
        import_grpc()
        if settings.sandbox == "strict":
            require_unreadable(Path(settings.state))
        with _sole_user(Path(settings.state)), exporting(settings.otlp_endpoint, NAME):
            metrics = _metrics(settings)
            while True:  # a session ends by itself once the device has another name
                _run_session(settings, metrics)


class _OneLine(logging.Formatter):
    """Formats each message as one printable line, because it may contain text from the coordinator."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record; a traceback, which is our own, follows on further lines."""
        message = record.getMessage()
        if not message.isprintable():
            record = logging.makeLogRecord({**vars(record), "msg": printable(message), "args": ()})
        return super().format(record)


def _require_trust(settings: DeviceSettings) -> None:
    """Raise NotFound if this device has no trust file; without TLS it uses this user's own by default."""
    from moonfed.edge_client.state.trust import load, pin
    from moonfed.signing.key_files import default_directory, ensure_keys

    state = Path(settings.state)
    if load(state):
        return
    if not settings.insecure:
        raise NotFound(
            f"{state} has no trust file; give it one with: moonfed-client trust FILE --state {state}",
            field="trust file",
        )
    pin(state, ensure_keys(default_directory(), logging.warning).verify())


def _metrics(settings: DeviceSettings) -> DeviceMetrics | None:
    if not settings.metrics_file:
        return None
    from moonfed.edge_client.agent.device_metrics import DeviceMetrics

    return DeviceMetrics(Path(settings.metrics_file))


def _run_session(settings: DeviceSettings, metrics: DeviceMetrics | None) -> None:
    from moonfed.edge_client.agent.compatibility import plan_interfaces
    from moonfed.edge_client.agent.session import Session
    from moonfed.edge_client.agent.worker_process import WorkerProcess
    from moonfed.signing.key_files import KEYS_VARIABLE

    connection = _open_connection(settings)
    set_process_title(f"{NAME}: {connection.device}")
    logs.set_process_fields(device=connection.device)
    _require_trust(settings)
    with writing(Path(settings.state)):
        note_version(Path(settings.state))
    os.environ.pop(KEYS_VARIABLE, None)  # the training process needs to know nothing about keys
    worker = WorkerSettings(
        state=settings.state,
        device=connection.device,
        data=settings.data or "",
        target=settings.target,
        ignored_folders=settings.ignored_folders,
        accelerator=settings.accelerator,
        holdout=settings.holdout,
        threads=settings.threads,
        precision=settings.precision,
        memory_format=settings.memory_format,
        max_steps=settings.max_steps,
        max_seconds=settings.max_seconds,
        max_memory=settings.max_memory,
        sandbox=settings.sandbox,
        labels={**settings.labels, SANDBOX_LABEL: settings.sandbox},
        plan_interfaces=plan_interfaces(settings.plan_format),
    )
    window = TrainingWindow.parse(settings.between) if settings.between else None
    Session(worker, connection, WorkerProcess(worker), window, metrics).run()


def _open_connection(settings: DeviceSettings) -> FleetConnection:
    from moonfed.edge_client.agent.connection import FleetConnection
    from moonfed.edge_client.agent.enrolment import read_identity
    from moonfed.transport.client import parse_address

    if settings.coordinator:
        parse_address(settings.coordinator, "coordinator")
    identity = None if settings.insecure else read_identity(Path(settings.state))
    return FleetConnection(
        settings.coordinator or (identity.address if identity else ""),
        identity.name if identity else settings.plain_name,
        identity,
        proxy=settings.proxy,
        max_bandwidth=settings.max_bandwidth,
    )


@contextmanager
def _sole_user(state: Path) -> Iterator[None]:
    """Hold STATE's lock; raise WrongState if another process runs with this directory."""
    with ExitStack() as stack:
        with writing(state):
            stack.enter_context(directory_lock(state, lambda process: _taken(state, process)))
        yield


def _taken(state: Path, process: str) -> WrongState:
    return WrongState(f"another {NAME} (process {process}) runs with the state directory {state}")


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Exit on a signal: with 0 on SIGTERM, which is how services are stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the rest is quick and must not be interrupted
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(2, logs.last_line(NAME, "stopped"))  # sys.stderr may be in the middle of a line and rejects re-entry
    sys.exit(INTERRUPTED if number == signal.SIGINT else 0)


if __name__ == "__main__":
    main()
