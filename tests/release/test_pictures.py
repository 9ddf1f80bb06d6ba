"""Pictures of results: what they count, against plain sums; and that any results can be drawn."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.bundle.target import NO_TARGET, UNKNOWN, TargetSpec, class_target
from moonfed.data.data_set import DataSet
from moonfed.release.pictures import BARS, Picture, against_true, bars, by_position, by_step, confusion, histogram
from moonfed.release.quality import details_of
from moonfed.release.svg import SHADES

Array = npt.NDArray[Any]
RNG = np.random.default_rng(7)
LONG = "a name that is much too long for the room beside a matrix"
PRICES = TargetSpec(kind="values", names=("price", "area"), shape=(2,), units=("EUR", ""))
LOADS = TargetSpec(kind="values", names=("load",), shape=(3, 1), units=("MW",))


def elements(picture: Picture, tag: str, kind: str = "") -> list[ElementTree.Element]:
    root = ElementTree.fromstring(picture.content)  # noqa: S314 - our own
    return [found for found in root.iter(f"{{http://www.w3.org/2000/svg}}{tag}") if kind in (found.get("class") or "")]


def texts(picture: Picture) -> list[str]:
    return [found.text or "" for found in elements(picture, "text")]


def squares(picture: Picture, shade: int) -> int:
    """Count a shade's runs of squares, besides the legend's."""
    opacity = f"{shade / SHADES:.2f}".rstrip("0").rstrip(".")
    return sum(found.attrib["d"].count("M") for found in elements(picture, "path", "first")
               if found.get("fill-opacity") == opacity)  # fmt: skip


@pytest.mark.parametrize("classes", [2, 10, 100, 256])
def test_a_confusion_matrix_of_any_size(classes: int) -> None:
    counts = np.diag(np.full(classes, 30)) + np.eye(classes, k=1, dtype=int)
    picture = confusion([LONG, "<&>\"'", *(f"class {number}" for number in range(2, classes))], counts, "samples")
    assert squares(picture, SHADES) == classes + 1  # the legend has one, too
    assert ("30" in texts(picture)) == (classes <= 10)
    assert ("<&>\"'" in texts(picture)) == (classes <= 10)
    assert not any(LONG in text for text in texts(picture))
    assert len(picture.content) < 50_000


def test_large_counts_are_shortened_to_fit() -> None:
    picture = confusion(["a", "b"], np.array([[999_999_999, 12_345], [1234, 0]]), "pixels")
    assert {"999M", "12k", "1234"} <= set(texts(picture))


def test_bars_are_as_long_as_the_metric_and_only_the_lowest_of_many() -> None:
    picture = bars("F1", "label", ["cat", "dog", "cow"], [1.0, 0.25, None])
    whole, quarter = (found.attrib["d"].split("h")[1].split("v")[0] for found in elements(picture, "path", "first"))
    assert float(quarter) == float(whole) / 4
    assert "cow" not in texts(picture)
    names, falling = [f"label {number}" for number in range(100)], [1 - number / 100 for number in range(100)]
    many = bars("F1", "label", names, falling)
    shown = [text for text in texts(many) if text.startswith("label")]
    assert shown == [f"label {number}" for number in range(99, 99 - BARS, -1)]


def test_predicted_values_are_drawn_against_true_ones_with_their_units() -> None:
    true = np.array([[0.0, 5.0], [10.0, 5.0], [10.0, 5.0], [np.nan, 5.0]])
    picture = against_true(true, true, PRICES)
    assert {"price (EUR)", "area"} <= set(texts(picture))
    # the pair at 10 is the strongest square, the one at 0 weaker; all of the second value are in one square
    assert squares(picture, SHADES) == 2
    assert sum(squares(picture, shade) for shade in range(1, SHADES + 1)) == 3


@pytest.mark.parametrize("values", [[0.0, 1e30], [1e-30, 2e-30], [5.0, 5.0], [-1.0, float("inf")], [float("nan")] * 2])
def test_extreme_values_can_be_drawn(values: list[float]) -> None:
    found = np.array(values)[:, None, None] * np.ones((1, 3, 1))
    for picture in (against_true(found, found[::-1], LOADS), by_step(found, found[::-1], LOADS)):
        assert b"nan" not in picture.content
        assert b"inf" not in picture.content
    finite = found[np.isfinite(found)]
    if len(finite):
        assert b"nan" not in histogram({"samples": finite}, float(finite.max())).content


def test_the_error_of_a_forecast_by_step_rises_where_it_does() -> None:
    true = np.zeros((4, 3, 1))
    picture = by_step(true + np.array([1.0, 2.0, 4.0])[None, :, None], true, LOADS)
    (line,) = elements(picture, "path", "line")
    heights = [float(point.split(" ")[1]) for point in line.attrib["d"][1:].split("L")]
    assert heights[0] - heights[1] == pytest.approx((heights[1] - heights[2]) / 2, abs=0.02)


def test_perplexity_by_place_leaves_places_without_tokens_out() -> None:
    picture = by_position(np.log([8.0, 4.0, 1.0]) * [2, 2, 0], np.array([2, 2, 0]))
    (line,) = elements(picture, "path", "line")
    assert line.attrib["d"].count("L") == 1


def test_scores_are_counted_in_bars_by_group() -> None:
    picture = histogram({"usual": np.array([0.0, 1.0, 1.0]), "anomalous": np.array([2.0, 99.0])}, 1.5)
    assert {"usual: 3", "anomalous: 2"} <= set(texts(picture))
    tall = [float(found.attrib["d"].split("v")[1].split("h")[0]) for found in elements(picture, "path", "first")]
    assert sorted(filter(None, tall)) == pytest.approx([max(tall) / 2, max(tall)], abs=0.02)
    assert len(elements(picture, "path", "mark")) == 2


@pytest.mark.parametrize(
    ("target", "outputs", "targets", "names"),
    [
        (class_target(3), RNG.random((9, 3)), np.arange(9) % 3, ["confusion.svg"]),
        (class_target(300), RNG.random((9, 300)), np.arange(9), ["f1.svg"]),
        (TargetSpec(kind="labels", names=("a", "b"), shape=(2,)), RNG.random((9, 2)), np.ones((9, 2), np.uint8),
         ["f1.svg"]),
        (TargetSpec(kind="mask", names=("a", "b"), shape=(2, 2)), RNG.random((9, 2, 2, 2)),
         np.full((9, 2, 2), [[0, 1], [1, UNKNOWN]], np.uint8), ["iou.svg", "confusion.svg"]),
        (PRICES, RNG.random((9, 2)), np.ones((9, 2), np.float32), ["predicted.svg"]),
        (LOADS, RNG.random((9, 3, 1)), np.ones((9, 3, 1), np.float32), ["predicted.svg", "steps.svg"]),
        (NO_TARGET, RNG.random(9), None, ["scores.svg"]),
        (TargetSpec(kind="next", shape=(0,)), RNG.random((9, 4, 5)), None, ["perplexity.svg"]),
    ],
)  # fmt: skip
def test_each_kind_of_target_has_its_pictures(
    target: TargetSpec, outputs: Array, targets: Array | None, names: list[str]
) -> None:
    samples = DataSet(inputs=np.arange(36).reshape(9, 4) % 5, targets=targets, target=target)
    drawn = list[tuple[Picture, ...]]()
    for batches in ([slice(0, 9)], [slice(0, 4), slice(4, 9)]):
        details = details_of(samples, None)
        for batch in batches:
            details.add(outputs[batch], samples.known_targets()[batch], samples.inputs[batch])
        drawn.append(details.pictures())
    assert [picture.name for picture in drawn[0]] == names
    assert drawn[0] == drawn[1]
