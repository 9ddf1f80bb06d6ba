from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coordinator.commands.console import Console
from coordinator.messages.settings import run_settings
from coordinator.server import Ports
from moonfed import transport
from moonfed.bundle import Bundle
from moonfed.errors import Unavailable
from moonfed.v1 import control_pb2
from tests.coordinator import support


@dataclass
class Fleet:
    """A coordinator with TLS in this process, its operator, and devices that were enrolled with a token."""

    state: Path
    ports: Ports
    operator: support.OperatorCalls
    stack: ExitStack
    tmp: Path

    def device(self, name: str) -> support.Device:
        identity = support.enrol(self.tmp / name, self.operator.token(), name)
        return support.Device(name, self.stack.enter_context(transport.open_channel(identity.address, identity)))

    def start(
        self,
        name: str = "run",
        rounds: int = 1,
        bundle: Bundle | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> control_pb2.Run:
        console = Console(self.operator.control, lambda: Unavailable("away"))
        chosen = run_settings(support.settings(rounds, **fields))
        return console.start_run(name, bundle or support.make_bundle(), None, chosen)


@contextmanager
def fleet_in(directory: Path, **fields: Any) -> Iterator[Fleet]:  # noqa: ANN401 - of ServeSettings
    """A coordinator that goes on where the one before in that directory ended."""
    with ExitStack() as stack:
        state = directory / "state"
        ports = stack.enter_context(support.coordinator_in_process(state, **fields))
        calls = support.operator(state, ports.fleet)
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
