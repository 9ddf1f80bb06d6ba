"""The settings of a run: rules that involve two of them, and their documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import DEFAULTS, RUN_SETTINGS, RunSettings
from moonfed.errors import Corrupt, InvalidInput
from tests.support.refusals import refused


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"quorum": Amount(count=3), "cohort": Amount(count=2)}, "quorum is 3; it must be at most the cohort, 2"),
        ({"trusted_labels": True}, "trusted_labels is given without a label"),
        ({"trusting": True, "clip_norm": 1.0}, "trusting is given together with bounds or a reducer"),
        ({"exclude_after": 2, "trusting": True}, "exclude_after is 2, and nothing is clipped; give clip_factor"),
        ({"exclude_after": 2, "reducer": "median"}, "exclude_after is 2, and nothing is clipped"),
        ({"max_staleness": 5}, "max_staleness is 5; it applies to asynchronous rounds only"),
        ({"asynchronous": 3, "quorum": Amount(count=4)}, "quorum is 4; it must be at most the buffer, 3"),
        ({"asynchronous": 3, "over_selection": 0.3}, "over_selection is 0.3; with asynchronous rounds it must be 0"),
        ({"asynchronous": 3, "sampling": "samples"}, "sampling is 'samples'; with asynchronous rounds"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_contradict_each_other_are_rejected(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        RunSettings(**fields)


PRIVATE: dict[str, Any] = {
    "privacy": {"epsilon": 2, "delta": 1e-5},
    "population": 3383,
    "cohort": Amount(count=120),
    "clip_norm": 0.5,
}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"privacy": {}}, "privacy.epsilon"),
        ({"privacy": {"epsilon": 2}}, "privacy.delta"),
        ({"privacy": {"epsilon": 2, "delta": 1e-3}}, "privacy.delta"),
        ({"privacy": {"epsilon": 2, "delta": 1e-5, "noise": 3}}, "privacy.noise"),
        ({"privacy": {"epsilon": 0, "delta": 1e-5}}, "privacy.epsilon"),
        ({"population": 0}, "cohort"),
        ({"population": 100}, "cohort"),
        ({"cohort": Amount(fraction=0.5)}, "cohort"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"asynchronous": 3}, "asynchronous"),
        ({"sampling": "samples"}, "sampling"),
        ({"over_selection": 0.1}, "over_selection"),
        ({"weight_cap": 1.25}, "weight_cap"),
        ({"clip_factor": 1.25}, "clip_factor"),
        ({"reducer": "median"}, "reducer"),
        ({"exclude_after": 2}, "exclude_after"),
        ({"trusting": True}, "trusting"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_privacy_excludes_whatever_would_void_it(fields: dict[str, Any], named: str) -> None:
    assert RunSettings(**PRIVATE).sampling_rate == 120 / 3383
    with refused(InvalidInput, named):
        RunSettings(**{**PRIVATE, **fields})


def test_privacy_is_written_in_one_text_and_asks_for_no_classes() -> None:
    texts = ("epsilon=2,delta=1e-5", ["epsilon=2", "delta=1e-5"], {"epsilon": 2, "delta": 1e-5})
    document = RunSettings(**PRIVATE).to_document()
    found = {RunSettings.read({**document, "privacy": text}).to_json() for text in texts}
    assert found == {RunSettings(**PRIVATE).to_json()}
    assert (RunSettings(**PRIVATE).asks_classes, DEFAULTS.asks_classes) == (False, True)


def test_bounds_that_the_bundle_will_give_may_exclude_devices() -> None:
    assert RunSettings(exclude_after=2).exclude_after == 2


def test_the_document_has_every_setting_and_reads_as_the_same() -> None:
    assert DEFAULTS.to_document().keys() == RUN_SETTINGS.keys()
    assert json.loads(RunSettings(seed=3).to_json(["seed"])) == {"seed": 3}
    assert RunSettings.read({}) == RunSettings.from_json("") == RunSettings.from_json(DEFAULTS.to_json()) == DEFAULTS


def test_a_key_that_is_not_a_setting_is_named() -> None:
    with pytest.raises(
        InvalidInput, match=r"method \(= 'moon'\) is not a key of a run's recipe in moonfed [\d.]+; the keys are asynch"
    ):
        RunSettings.from_json('{"method": "moon"}')


@pytest.mark.parametrize("text", ["{", "[]", "3", "[" * 100_000], ids=["incomplete", "list", "number", "nested"])
def test_a_request_that_is_no_document_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"settings is .*; it must be"):
        RunSettings.from_json(text)


def test_a_later_release_may_reply_with_more_settings() -> None:
    assert RunSettings.received(json.dumps({**DEFAULTS.to_document(), "patience": 3})) == DEFAULTS


@pytest.mark.parametrize(
    "document",
    [{"rounds": 0}, {"reducer": "\x1b[2J"}, {"labels": {"a": "\x07"}}, {"trusting": True, "clip_norm": 1}],
    ids=["number", "reducer", "label", "contradiction"],
)
def test_a_malformed_reply_is_corrupt(document: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="reply is malformed: "):
        RunSettings.received(json.dumps(document))
