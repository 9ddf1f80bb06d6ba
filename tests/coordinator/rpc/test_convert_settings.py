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
        robust=control_pb2.RobustSettings(weight_cap=1.5, clip_factor=1.0, reducer="mean"),
        exclude_after=3,
    )
    fleet.start("run")
    bundle = coordinator.make_bundle()
    blobs = {"manifest": bundle.ref.sha256, "signature": bundle.signature_sha256}
    started = start(fleet, **blobs, settings=given, allow_empty=True)
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


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ("rounds = 3", "recipe is 'rounds = 3'; it must be JSON"),
        ("[" * 100_000, "it must be JSON"),
        ("[3]", "it must be a JSON object"),
        ('{"rounds": 0}', "rounds is 0"),
        ('{"rounds": {}}', "rounds is {}; it must be a number or text"),
        ('{"epochs": 3}', "epochs .* is not a key of a run's recipe"),
    ],
)
def test_an_invalid_recipe_is_named(fleet: Fleet, recipe: str, told: str) -> None:
    fleet.start("run")
    bundle = coordinator.make_bundle()
    with pytest.raises(InvalidInput, match=told):
        start(fleet, manifest=bundle.ref.sha256, signature=bundle.signature_sha256, recipe=recipe)


def test_a_recipe_has_the_defaults_of_run_start(fleet: Fleet) -> None:
    fleet.start("run")
    bundle = coordinator.make_bundle()
    recipe = '{"rounds": 4, "parties": 5}'
    started = start(fleet, manifest=bundle.ref.sha256, signature=bundle.signature_sha256, recipe=recipe)
    assert (started.settings.rounds, started.settings.quorum.fraction) == (4, 0.5)
    assert (started.settings.robust.weight_cap, started.settings.robust.clip_factor) == (1.25, 1.25)
