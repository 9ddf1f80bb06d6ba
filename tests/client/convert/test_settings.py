"""Settings of a run: all that the commands know, from and to messages."""

from __future__ import annotations

from typing import Any

import pytest

from moonfed.client import RunSettings
from moonfed.client.convert.settings import recipe_message, run_settings
from moonfed.coordinator.rounds.run_recipe import RUN_KEYS, recipe_of
from moonfed.coordinator.rpc.convert_settings import run_recipe, settings_message
from tests.support.coordinator import make_bundle

MANIFEST = make_bundle().manifest


def test_the_client_knows_every_setting() -> None:
    assert RunSettings.__annotations__.keys() == set(RUN_KEYS)


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"rounds": 3, "cohort": "20%", "quorum": 2, "labels": {"site": "berlin"}, "trusted_labels": True},
        {"asynchronous": 4, "max_staleness": 7, "minimum_devices": 5, "quorum": "100%", "trusting": True},
        {"robust": {"reducer": "trimmed_mean", "byzantine": 1, "clip_norm": 2.5}, "quorum": 5, "over_selection": "1%"},
        {"exclude_after": 3, "robust": {"weight_cap": 2, "clip_factor": 1.5}},
        {"sampling": "samples", "seed": 2**64 - 1, "uplink_encoding": "int8", "keep_last": 3, "deadline": 7.5},
    ],
)
def test_what_the_coordinator_made_of_a_recipe_is_a_recipe_for_the_same_run(chosen: dict[str, Any]) -> None:
    settings = run_recipe(recipe_message(None, chosen)).settings(MANIFEST)
    shown = run_settings(settings_message(settings))
    assert run_recipe(recipe_message(None, shown)).settings(MANIFEST) == settings
    document = recipe_of(settings).to_document()
    assert {key: str(shown.get(key)) for key in document if key != "robust"} == {
        key: str(value) for key, value in document.items() if key != "robust"
    }
