from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moonfed import transport
from moonfed.bundle import Bundle
from moonfed.coordinator.cli.control_client import Console
from moonfed.coordinator.rpc.convert_settings import run_settings
from moonfed.coordinator.server import Ports
from moonfed.errors import Unavailable
from moonfed.v1 import control_pb2
from tests.support import coordinator


@dataclass
class Fleet:
    """A coordinator with TLS in this process, its operator, and devices that were enrolled with a token."""

    state: Path
    ports: Ports
    operator: coordinator.OperatorCalls
    stack: ExitStack
    tmp: Path

    def device(self, name: str) -> coordinator.Device:
        identity = coordinator.enrol(self.tmp / name, self.operator.token(), name)
        return coordinator.Device(name, self.stack.enter_context(transport.open_channel(identity.address, identity)))

    def start(
        self,
        name: str = "run",
        rounds: int = 1,
        bundle: Bundle | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> control_pb2.Run:
        console = Console(self.operator.control, lambda: Unavailable("away"))
        chosen = run_settings(coordinator.settings(rounds, **fields))
        return console.start_run(name, bundle or coordinator.make_bundle(), None, chosen)


@contextmanager
def fleet_in(directory: Path, **fields: Any) -> Iterator[Fleet]:  # noqa: ANN401 - of ServeSettings
    """A coordinator that resumes where the previous one in that directory ended."""
    with ExitStack() as stack:
        state = directory / "state"
        ports = stack.enter_context(coordinator.coordinator_in_process(state, **fields))
        calls = coordinator.operator(state, ports.fleet)
        stack.enter_context(calls.channel)
        yield Fleet(state, ports, calls, stack, directory)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as opened:
        yield opened


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits until something is so; the test's own time limit ends a vain wait."""
    import time

    def wait(condition: Callable[[], bool]) -> None:
        while not condition():
            time.sleep(0.02)

    return wait
