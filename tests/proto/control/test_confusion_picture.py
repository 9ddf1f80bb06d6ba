"""The picture of a confusion matrix: every count is in it, and large matrices stay legible."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm, to_rgba

from moonfed.bundle.manifest import ACCURACY
from moonfed.control.confusion_picture import draw_confusion, require_picture
from moonfed.control.held_out_score import MAX_CONFUSION, HeldOutScore
from moonfed.errors import InvalidInput
from tests.proto.control.test_held_out_score import SCORE
from tests.support.refusals import refused


def score_of(classes: int) -> HeldOutScore:
    """One sample of each class, all predicted as the first."""
    ones, matrix = (1,) * classes, np.zeros((classes, classes), int)
    matrix[:, 0] = 1
    return HeldOutScore(
        test_set="test",
        sha256="a" * 64,
        samples=classes,
        metric=ACCURACY,
        metrics={"accuracy": 1 / classes, "loss": 1.0},
        calibration_error=0.0,
        calibration_bins=15,
        classes=tuple(f"class {number}" for number in range(classes)),
        support=ones,
        predicted=(classes, *(0,) * (classes - 1)),
        correct=(1, *(0,) * (classes - 1)),
        confusion=tuple(map(int, matrix.ravel())) if classes <= MAX_CONFUSION else (),
    )


def test_the_picture_names_classes_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(Axes, "text", lambda self, x, y, text, **_: drawn.append(f"{y},{x}: {text}"))
    draw_confusion(tmp_path / "matrix.png", SCORE, "run r")
    assert drawn == [f"{i},{j}: {count}" for i, row in enumerate(SCORE.rows()) for j, count in enumerate(row)]
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")


def test_counts_contrast_with_their_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WCAG 2 requires a contrast of 4.5 between text and background."""
    colours: dict[float, str] = {}
    for wrong in (1, 20, 40, 48, 50, 51, 52, 60, 80, 99):  # percent
        drawn: list[str] = []
        monkeypatch.setattr(Axes, "text", lambda *_, color, drawn=drawn, **__: drawn.append(color))
        draw_confusion(tmp_path / "matrix.png", two_classes(wrong), "run r")
        colours[wrong / 100] = drawn[1]
    for share, colour in colours.items():
        background = colormaps["Blues"](PowerNorm(0.5, vmin=0, vmax=1)(share))
        light, dark = sorted((luminance(background), luminance(to_rgba(colour))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.4, share


def two_classes(wrong: int) -> HeldOutScore:
    """A hundred samples of one class, some predicted as the other."""
    right = 100 - wrong
    return replace(
        SCORE,
        samples=100,
        metrics={"accuracy": right / 100},
        classes=("cat", "dog"),
        support=(100, 0),
        predicted=(right, wrong),
        correct=(right, 0),
        confusion=(right, wrong, 0, 0),
    )


def luminance(colour: tuple[float, ...]) -> float:
    """The relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_names_of_classes_are_shown_as_they_are_and_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    set_yticks = Axes.set_yticks

    def draw(self: Axes, places: range, names: list[str], **options: Any) -> None:
        drawn.extend(names)
        set_yticks(self, places, names, **options)

    monkeypatch.setattr(Axes, "set_yticks", draw)
    draw_confusion(tmp_path / "matrix.png", replace(two_classes(1), classes=(r"$\none$", "long " * 9)), "run r")
    assert drawn == [r"$\none$", "long long long long…"]


def test_a_picture_is_a_png(tmp_path: Path) -> None:
    with refused(InvalidInput, "picture"):
        require_picture(tmp_path / "matrix.txt")


def test_a_large_matrix_has_shares_instead_of_numbers(tmp_path: Path) -> None:
    draw_confusion(tmp_path / "matrix.png", score_of(100), "run r")
    image = plt.imread(tmp_path / "matrix.png")
    assert max(image.shape) < 2000
    with refused(InvalidInput, "classes", 300):
        draw_confusion(tmp_path / "none.png", score_of(300), "run r")


def test_without_matplotlib_a_command_fails_before_it_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError):
        require_picture(tmp_path / "matrix.png")


def test_the_same_score_gives_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_confusion(tmp_path / name, replace(SCORE, test_set="x"), "run r")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
