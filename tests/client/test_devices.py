"""Devices and join tokens through both clients."""

from __future__ import annotations

from datetime import datetime, timezone

import pandas as pd
import pytest

from moonfed.client import Coordinator
from moonfed.errors import InvalidInput, NotFound
from moonfed.transport.join_token import parse_token
from tests.client.conftest import Fleet
from tests.faults.fleet import SAMPLES
from tests.support import coordinator


def test_devices_are_a_table(client: Coordinator) -> None:
    table = pd.DataFrame(client.devices(online=True))
    assert list(table["device"]) == sorted(SAMPLES)
    assert table["online"].all()
    assert (table["certificate_expires"] > pd.Timestamp.now("UTC")).all()
    assert client.devices(labels={"site": "nowhere"}) == []


def test_a_device_is_labelled_renamed_revoked_and_removed(fleet: Fleet, client: Coordinator) -> None:
    token = client.create_token(uses=1, valid_hours=1)
    assert token.expires > datetime.now(timezone.utc)
    assert parse_token(token.token).trust, "without it, the device would trust no bundle"
    name = f"spare-{token.id[:6]}"
    coordinator.enrol(fleet.coordinators.tmp / name, token.token, name)
    labelled = client.label_device(name, {"site": "berlin", "tier": "gold"})
    assert labelled.operator_labels == {"site": "berlin", "tier": "gold"}
    assert client.label_device(name, remove=["tier"]).operator_labels == {"site": "berlin"}
    assert [device.device for device in client.devices(labels={"site": "berlin"})] == [name]
    with pytest.raises(InvalidInput, match="labels are missing"):
        client.label_device(name)
    renamed = f"{name}-north"
    assert client.rename_device(name, renamed).device == renamed
    assert client.revoke_device(renamed).revoked is not None
    found = client.device(renamed)
    assert found.certificates[-1].reason == "revoked"
    assert found.last_result is None
    client.remove_device(renamed)
    with pytest.raises(NotFound, match=renamed):
        client.device(renamed)


def test_join_tokens_are_a_table_and_can_be_revoked(client: Coordinator) -> None:
    token = client.create_token(uses=3)
    table = pd.DataFrame(client.tokens()).set_index("id")
    assert (table.loc[token.id, "status"], table.loc[token.id, "uses_left"]) == ("valid", 3)
    revoked = client.revoke_token(token.id)
    assert (revoked.status, revoked.uses) == ("revoked", 3)


def test_a_device_tells_its_last_result(fleet: Fleet, client: Coordinator) -> None:
    run = client.start(fleet.path, rounds=1, minimum_devices=3, quorum="all", trusting=True).run
    list(client.watch(run))
    found = client.device("cam-2")
    assert found.last_result is not None
    assert (found.last_result.run, found.last_result.outcome) == (run, "counted")
    assert found.rounds > 0
