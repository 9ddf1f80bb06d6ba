"""The clients as a whole: connections, errors, equal calls, and examples that type checkers accept."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from moonfed.client import AsyncCoordinator, Coordinator
from moonfed.errors import InvalidInput, NotFound, Unavailable
from moonfed.transport.operator_connection import IDENTITY_VARIABLE
from tests.client.conftest import Fleet

ROOT = Path(__file__).parents[2]
OPENING = ("Coordinator", "AsyncCoordinator")


def calls(client: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(found)
        for name, found in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_calls() -> None:
    ours, theirs = calls(Coordinator), calls(AsyncCoordinator)
    assert ours.keys() == theirs.keys()
    for name, signature in ours.items():
        expected = str(signature).replace("Iterator", "AsyncIterator") if name == "watch" else str(signature)
        assert expected == str(theirs[name]), name
        assert name == "watch" or inspect.iscoroutinefunction(getattr(AsyncCoordinator, name)), name


def test_every_call_has_an_example_and_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "python-client.md").read_text()
    for client in (Coordinator, AsyncCoordinator):
        for name in calls(client).keys() - {"close"}:
            documented = inspect.getdoc(getattr(client, name)) or ""
            assert f"coordinator.{name}(" in documented.partition("Example:")[2], name
            assert f".{name}(" in guide, name


def test_the_identity_is_found_as_by_the_commands(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="MOONFED_IDENTITY"):
        Coordinator()
    monkeypatch.setenv(IDENTITY_VARIABLE, str(fleet.identity))
    with Coordinator() as coordinator:
        assert isinstance(coordinator.runs(), list)
    (tmp_path / "moonfed-coordinator").mkdir()
    (tmp_path / "moonfed-coordinator" / "operator").symlink_to(fleet.identity)
    monkeypatch.delenv(IDENTITY_VARIABLE)
    with Coordinator() as coordinator:
        assert isinstance(coordinator.runs(), list)


def test_an_absent_coordinator_is_an_error_of_ours(fleet: Fleet) -> None:
    with (
        Coordinator(fleet.identity, address="127.0.0.1:9") as coordinator,
        pytest.raises(Unavailable, match=r"127.0.0.1:9 cannot be reached"),
    ):
        coordinator.start(fleet.path)

    async def ask() -> None:
        async with AsyncCoordinator(fleet.identity, address="127.0.0.1:9") as coordinator:
            await coordinator.runs()

    with pytest.raises(Unavailable, match=r"127.0.0.1:9 cannot be reached"):
        asyncio.run(ask())


@pytest.mark.parametrize("client", [Coordinator, AsyncCoordinator])
def test_plaintext_stays_on_this_machine(client: type[Coordinator]) -> None:
    with pytest.raises(InvalidInput, match="without TLS"):
        client(insecure=True, address="hub.example:7443")
    with pytest.raises(InvalidInput, match="coordinator is 'hub'; it must be host:port"):
        client(insecure=True, address="hub")
