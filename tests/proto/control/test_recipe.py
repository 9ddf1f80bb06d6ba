"""Recipes of runs, in TOML and in JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from moonfed.control.recipe import FLEET_KEYS, RECIPE_BYTES, override, read_recipe_file, run_keys, to_toml
from moonfed.control.run_settings import RunSettings
from moonfed.errors import InvalidInput, NotFound

FULL = RunSettings.read(
    {
        "rounds": 7, "cohort": "66.6666666667%", "minimum_devices": 3, "quorum": 2, "deadline": 12.5, "max_attempts": 4,
        "heartbeat_timeout": 9, "over_selection": "30%", "trusted_labels": True, "sampling": "samples",
        "uplink_encoding": "int8+zstd", "downlink_encoding": "bfloat16", "exclude_after": 3, "seed": 2**64 - 1,
        "keep_last": 3, "keep_every": 0, "labels": {"site": 'Köln "Süd"', "site.2": "x"}, "clip_norm": 2,
        "reducer": "multi_krum", "reducer_settings": {"byzantine": 2},
    }
)  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [RunSettings(), FULL, RunSettings(trusting=True), RunSettings(asynchronous=4, max_staleness=3)],
    ids=["defaults", "full", "trusting", "asynchronous"],
)
def test_a_recipe_in_toml_or_json_is_the_same_run(settings: RunSettings, tmp_path: Path) -> None:
    for text in (to_toml(settings.to_document()), settings.to_json()):
        (tmp_path / "recipe").write_text(text)
        assert RunSettings.read(read_recipe_file(tmp_path / "recipe")) == settings


def test_the_keys_of_the_simulated_fleet_are_not_the_runs() -> None:
    document = {"rounds": 3, "parties": 200, "beta": 0.5, "dropouts": 0.1, "labels": {"a": "b"}}
    assert run_keys(document) == {"rounds": 3, "labels": {"a": "b"}}
    assert "by" in FLEET_KEYS


def test_given_settings_replace_the_recipes() -> None:
    krum = {"clip_norm": 2, "reducer": "multi_krum", "reducer_settings": {"byzantine": 2}}
    assert override({"rounds": 3, "trusting": True}, {"rounds": 5}) == {"rounds": 5, "trusting": True}
    assert override({"rounds": 3, "trusting": True}, {"clip_factor": 3.0}) == {"rounds": 3, "clip_factor": 3.0}
    capped = {"clip_norm": 2, "weight_cap": 1.5, "reducer": "mean"}
    assert override(krum, {"weight_cap": 1.5, "reducer": "mean"}) == capped
    assert override(krum, {"reducer_settings": {"byzantine": 1}}) == {**krum, "reducer_settings": {"byzantine": 1}}
    assert override(krum, {"trusting": True}) == {"trusting": True}
    assert override({"labels": {"a": "b"}}, {"labels": ["site=berlin"]}) == {"labels": ["site=berlin"]}


def test_a_file_that_is_no_recipe_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    with pytest.raises(NotFound, match=r"recipe is '.*'; there is no such file"):
        read_recipe_file(file)
    for content, message in ((b"rounds = ", "is not TOML"), (b"\xff", "is not TOML"), (b"{", "is not TOML"),
                             (bytes(RECIPE_BYTES + 1), "has more than 1,048,576 bytes; is it a recipe?")):  # fmt: skip
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match=message):
            read_recipe_file(file)


def test_text_of_any_kind_survives_toml() -> None:
    odd = {"labels": {'a "b"': "c\\d\n\t\x7f é 🙂", "": "x"}}
    assert tomllib.loads(to_toml(odd)) == odd
