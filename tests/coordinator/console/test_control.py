"""The console's connection to the Control service."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.console.control import load_operators, permitted_calls
from moonfed.coordinator.console.settings import ConsoleSettings
from moonfed.errors import InvalidInput, NotFound
from tests.coordinator.console.conftest import Federation
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


def test_identities_are_operators_once_each(federation: Federation, tmp_path: Path) -> None:
    operators = load_operators(ConsoleSettings(identities=(federation.identity,)))
    assert [(name, one.role) for name, one in operators.items()] == [("operator", "admin")]
    with refused(InvalidInput, "identity", "operator"):
        load_operators(ConsoleSettings(identities=(federation.identity, federation.identity)))
    with refused(InvalidInput, "identity"):
        load_operators(ConsoleSettings(identities=(federation.fleet.tmp / "cam-0",)))
    with pytest.raises(NotFound, match="holds no identity"):
        load_operators(ConsoleSettings(identities=(tmp_path,)))


def test_without_tls_the_coordinator_is_on_this_machine() -> None:
    (operator,) = load_operators(ConsoleSettings(identities=(), insecure=True)).values()
    assert (operator.name, operator.role, operator.address) == ("operator", "admin", "127.0.0.1:7443")
    with pytest.raises(InvalidInput, match="without TLS"):
        load_operators(ConsoleSettings(identities=(), insecure=True, coordinator="10.0.0.1:7443"))


def test_calls_are_permitted_by_role() -> None:
    assert {"GetRun", "ListDevices"} <= set(permitted_calls("viewer"))
    assert "StopRun" not in permitted_calls("evaluator")
    assert "StopRun" in permitted_calls("engineer")
    assert set(permitted_calls("engineer")) < set(permitted_calls("admin"))
