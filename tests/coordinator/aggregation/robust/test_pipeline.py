"""The norm clip, and reducers applied to its result, compared with numpy on whole models in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moonfed.control.run_settings import RunSettings
from tests.support.aggregation_rounds import PARAMETERS, SIZE, robust_settings
from tests.support.robust_rounds import F64, NAMES, ROBUST, SLICES, START, assert_close, rounds, updates


def clipped_by_hand(models: F64, robust: RunSettings) -> F64:
    changes = models - START
    lengths = {
        "parameters": np.linalg.norm(changes[:, PARAMETERS], axis=1),
        "statistics": np.linalg.norm(changes[:, ~PARAMETERS], axis=1),
    }
    result = models.copy()
    for device in range(len(models)):
        bounds = [robust.clip_norm or np.inf]
        if robust.clip_factor:
            bounds.append(robust.clip_factor * np.median(lengths["parameters"]))
        of_parameters = min(1.0, min(bounds) / lengths["parameters"][device])
        of_statistics = of_parameters
        if robust.clip_factor:
            usual = np.median(lengths["statistics"])
            of_statistics = min(of_statistics, robust.clip_factor * usual / lengths["statistics"][device])
        scale = np.where(PARAMETERS, of_parameters, of_statistics)
        result[device] = START + scale * changes[device]
    return result


@pytest.mark.parametrize(
    "robust",
    [
        robust_settings(clip_norm=9.0),
        robust_settings(clip_factor=1.0),
        robust_settings(clip_factor=0.5),
        robust_settings(clip_norm=3, clip_factor=2),
    ],
)
@pytest.mark.parametrize("slice_elements", SLICES)
def test_a_change_that_is_too_long_is_scaled_down(tmp_path: Path, robust: RunSettings, slice_elements: int) -> None:
    lengths = np.array([0.2, 0.9, 1.0, 1.1, 6.0])
    models = (START + lengths[:, None] * (updates(2, 5) - START)).astype(np.float32).astype(np.float64)
    samples = [5, 1, 2, 3, 4]
    played = rounds(tmp_path, robust, slice_elements=slice_elements)
    found = played.next(models, samples)
    expected = clipped_by_hand(models, robust)
    assert not np.allclose(expected, models)
    assert_close(found, np.average(expected, axis=0, weights=samples))


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
@pytest.mark.parametrize("slice_elements", SLICES)
def test_reducers_see_the_changes_as_they_were_clipped(
    tmp_path: Path, robust: RunSettings, slice_elements: int
) -> None:
    lengths = np.array([0.5, 0.9, 1.0, 1.1, 2.0, 8.0, 30.0])
    models = (START + lengths[:, None] * (updates(6, 7) - START)).astype(np.float32).astype(np.float64)
    clipping = replace(robust, clip_factor=1.2)
    found = rounds(tmp_path, clipping, slice_elements=slice_elements).next(models, [1] * 7)
    by_hand = clipped_by_hand(models, clipping)
    # the same reducer on files that hold the clipped models
    plain = rounds(tmp_path / "plain", robust).next(by_hand, [1] * 7)
    assert_close(found, plain, rtol=1e-5)
    unclipped = rounds(tmp_path / "un", robust).next(models, [1] * 7)
    assert np.abs(found - unclipped).max() > 1e-2


def test_clipped_devices_are_reported_with_the_figures(tmp_path: Path) -> None:
    models = np.full((3, SIZE), START)
    models[1, PARAMETERS] += 10.0  # 86 parameters: the norm is 10·√86
    played = rounds(tmp_path, robust_settings(clip_norm=2.0))
    found = played.next(models, [1, 1, 2])
    np.testing.assert_allclose(found[PARAMETERS], START + 2 / np.sqrt(86) / 4, rtol=1e-6)
    (incident,) = played.incidents
    assert incident.device == "cam-1"
    assert incident.description == "the change of its parameters was scaled down from norm 92.74 to 2"


@pytest.mark.parametrize("honest", [1, 2, 3, 4])
def test_a_long_change_is_clipped_from_two_updates_on(tmp_path: Path, honest: int) -> None:
    """An attacker raises no bound while at least as many others are honest: of two updates, the shorter one counts."""
    models = np.full((honest + 1, SIZE), START)
    models[:honest, PARAMETERS] += 1.0
    models[-1, PARAMETERS] -= 1e6
    found = rounds(tmp_path, robust_settings(clip_factor=1.0)).next(models, [1] * (honest + 1))
    np.testing.assert_allclose(found[PARAMETERS], START + (honest - 1) / (honest + 1), atol=1e-5)


def test_as_many_attackers_as_honest_devices_raise_no_bound(tmp_path: Path) -> None:
    models = np.full((4, SIZE), START)
    models[:2, PARAMETERS] += 1.0
    models[2:, PARAMETERS] += 1e6
    found = rounds(tmp_path, robust_settings(clip_factor=1.0)).next(models, [1] * 4)
    np.testing.assert_allclose(found[PARAMETERS], START + 1.0, rtol=1e-5)


def test_a_clip_is_reported_only_of_an_unusually_long_change(tmp_path: Path) -> None:
    """A clip at the median scales down every second honest change; those of up to three medians are usual."""
    models = np.full((5, SIZE), START)
    models[:, PARAMETERS] += np.array([0.5, 1.0, 1.0, 2.9, 3.1])[:, None]
    played = rounds(tmp_path, robust_settings(clip_factor=1.0))
    found = played.next(models, [1] * 5)
    np.testing.assert_allclose(found[PARAMETERS], START + 4.5 / 5, rtol=1e-5)
    assert [(incident.device, incident.clipped) for incident in played.incidents] == [("cam-4", True)]


def test_the_hundred_most_severe_incidents_of_a_round_are_kept(tmp_path: Path) -> None:
    lengths = 1.0 + np.arange(130) / 100
    lengths[7] = 50.0
    models = np.full((130, SIZE), START)
    models[:, PARAMETERS] += lengths[:, None]
    played = rounds(tmp_path, robust_settings(clip_norm=0.1))
    played.next(models, [1] * 130)
    kept = {int(told.device.removeprefix("cam-")) for told in played.incidents}
    assert len(played.incidents) == 100
    assert kept == {7, *range(31, 130)}


def test_a_variance_is_never_clipped_below_zero(tmp_path: Path) -> None:
    """A clipped statistic is between the round's initial value and the device's."""
    models = np.full((5, SIZE), START)
    models[:, 96:107] = 1e-3
    models[4] = START + 1e6
    played = rounds(tmp_path, robust_settings(clip_norm=1e-3, clip_factor=1.0))
    found = played.next(models, [1] * 5)
    assert (found[96:107] > 0).all()
