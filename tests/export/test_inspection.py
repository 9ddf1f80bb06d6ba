"""The description of a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.bundle.files import read_bundle
from moonfed.cli.program import app
from moonfed.server_rules import SERVER_RULES
from moonfed.server_rules.fedavgm import FedAvgM

pytestmark = pytest.mark.slow


def test_a_bundles_rule_augmentation_and_head_can_be_chosen_and_inspected(tmp_path: Path) -> None:
    runner, path = CliRunner(), str(tmp_path / "b")
    options = ("--method", "fedssc", "--projection", "none", "--augmentation", "crop-flip", "--set", "views=3")
    rule = ("--server-rule", "fedavgm", "--server-set", "damped=true", "--server-set", "server_momentum=0.7")
    pictures = ("bundle", "--input", "8x8x1", "--classes", "10", "--output", path)
    runner.invoke(app, [*pictures, *options, *rule], catch_exceptions=False)
    manifest = read_bundle(Path(path)).manifest
    assert SERVER_RULES.build(manifest.server_rule) == FedAvgM(damped=True, server_momentum=0.7)
    assert (manifest.augmentation, manifest.training.views) == ("crop-flip", 3)
    assert manifest.downlink["prototypes"][1].shape == (10, 84)  # without a head z is the encoder's
    lines = runner.invoke(app, ["inspect", path], catch_exceptions=False).output.splitlines()
    shown = {tuple(" ".join(line.split()).split(" ", 1)) for line in lines}
    assert ("augmentation", "crop-flip, 3 views of each sample") in shown
    assert ("server", "rule fedavgm, damped = true, server_momentum = 0.7, weighting = samples") in shown
    assert ("mu_glob", "= 1 until round 5, linearly to 0.0001 in round 100") in shown
    assert ("down", "prototypes, 850 numbers, each of 1 device") in shown
    assert ("up", "class_means, 850 numbers") in shown
