"""Recipes of runs: the same settings from options, from TOML, and from a run that has been started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomllib

from moonfed.coordinator.aggregation.compatibility import default_bounds
from moonfed.coordinator.rounds.run_recipe import (
    FLEET_KEYS,
    RECIPE_BYTES,
    RunRecipe,
    read_recipe_file,
    read_run_recipe,
    recipe_of,
    run_keys,
    to_toml,
)
from moonfed.coordinator.rounds.settings import Amount, RunSettings
from moonfed.errors import InvalidInput, NotFound
from tests.support.coordinator import make_bundle

MANIFEST = make_bundle().manifest
FULL = RunRecipe(
    rounds=7, cohort="66.6666666667%", minimum_devices=3, quorum="2", deadline=12.5, max_attempts=4,
    heartbeat_timeout=9.0, over_selection="30%", trusted_labels=True, sampling="samples",
    uplink_encoding="int8+zstd", downlink_encoding="bfloat16", exclude_after=3, seed=5, keep_last=3, keep_every=0,
    labels={"site": 'Köln "Süd"', "site.2": "x"},
    robust={"clip_norm": 2.0, "reducer": "multi_krum", "byzantine": 2},
)  # fmt: skip


@pytest.mark.parametrize(
    "recipe",
    [RunRecipe(), FULL, RunRecipe(trusting=True), RunRecipe(asynchronous=4, max_staleness=3, cohort="8")],
)
def test_the_recipe_of_a_run_starts_the_same_run(recipe: RunRecipe, tmp_path: Path) -> None:
    settings = recipe.settings(MANIFEST)
    (tmp_path / "recipe.toml").write_text(to_toml(recipe_of(settings).to_document()))
    again = read_run_recipe(read_recipe_file(tmp_path / "recipe.toml"))
    assert again.settings(MANIFEST) == settings


def test_the_defaults_are_bounded_and_those_of_the_run_otherwise() -> None:
    assert RunRecipe().settings(MANIFEST) == RunSettings(rounds=10, robust=default_bounds(MANIFEST))
    assert default_bounds(MANIFEST)
    assert not RunRecipe(trusting=True).settings(MANIFEST).robust


def test_a_recorded_share_selects_as_many_devices() -> None:
    for total in range(1, 200):
        for part in range(1, total + 1):
            recorded = recipe_of(RunSettings(rounds=1, cohort=Amount(fraction=part / total))).cohort
            assert RunRecipe(cohort=recorded, trusting=True).settings(MANIFEST).cohort.of(total) == part


def test_the_keys_of_the_simulated_fleet_are_not_the_runs() -> None:
    document = {"rounds": 3, "parties": 200, "beta": 0.5, "dropouts": 0.1, "robust": {"clip_factor": 3}}
    assert run_keys(document) == {"rounds": 3, "robust": {"clip_factor": 3}}
    assert "by" in FLEET_KEYS


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"method": "moon"}, "method (= 'moon') is not a key of a run's recipe; the keys are asynchronous, beta"),
        ({"rounds": "many"}, "rounds is 'many'; it must be a whole number"),
        ({"trusting": "maybe"}, "trusting is 'maybe'; it must be true or false"),
        ({"cohort": [1]}, "cohort is [1]; it must be a number or text"),
        ({"robust": 3}, "robust is 3; it must be a table, [robust]"),
        ({"labels": {"site": [1]}}, "labels.site is [1]; it must be a number or text"),
        ({"trusting": True, "robust": {"clip_norm": 1}}, "trusting is given together with bounds or a reducer"),
        ({"exclude_after": -1}, "exclude_after is -1; it must be a whole number from 1"),
        ({"exclude_after": 2, "trusting": True}, "exclude_after is 2, and nothing is clipped; give clip_factor"),
        ({"exclude_after": 2, "robust": {"reducer": "median"}}, "exclude_after is 2, and nothing is clipped"),
    ],
)
def test_a_wrong_key_is_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_run_recipe(document).settings(MANIFEST)
    assert message in str(caught.value)


def test_a_file_that_is_no_recipe_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    with pytest.raises(NotFound, match=r"recipe is '.*'; there is no such file"):
        read_recipe_file(file)
    for content, message in ((b"rounds = ", "is not TOML"), (b"\xff", "is not TOML"),
                             (bytes(RECIPE_BYTES + 1), "has more than 1,048,576 bytes; is it a recipe?")):  # fmt: skip
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match=message):
            read_recipe_file(file)


def test_text_of_any_kind_survives_toml() -> None:
    odd = {"labels": {'a "b"': "c\\d\n\t\x7f é 🙂", "": "x"}}
    assert tomllib.loads(to_toml(odd)) == odd
