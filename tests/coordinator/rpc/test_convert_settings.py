"""Conversion of a run's settings from and to messages."""

from __future__ import annotations

from typing import Any

import pytest

from moonfed.errors import InvalidInput
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet, start
from tests.support import coordinator


def test_settings_survive_conversion(fleet: Fleet) -> None:
    given = coordinator.settings(
        5,
        cohort=control_pb2.Amount(count=7),
        minimum_devices=3,
        quorum=control_pb2.Amount(fraction=0.25),
        seed=2**64 - 1,
        downlink_encoding="bfloat16+zstd",
        uplink_encoding="int8",
        retention=control_pb2.Retention(last=3, every=7),
        max_attempts=4,
        labels={"site": "berlin"},
        trusted_labels=True,
    )
    fleet.start("run")
    bundle = coordinator.make_bundle()
    started = start(fleet, manifest=bundle.ref.sha256, signature=bundle.signature_sha256, settings=given)
    assert started.settings == given
    assert fleet.operator.run(started.run) == started


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"cohort": control_pb2.Amount()}, "cohort is 0"),
        ({"deadline_seconds": float("nan")}, "deadline_seconds is nan"),
        ({"minimum_devices": 0}, "minimum_devices is 0"),
    ],
)
def test_invalid_settings_are_rejected(fleet: Fleet, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        start(fleet, settings=coordinator.settings(**{"rounds": 1, **fields}))
