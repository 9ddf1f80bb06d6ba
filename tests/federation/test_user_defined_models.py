"""A user's own model on the whole path: bundle, federation, repository, server, prediction."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.experiments.child_processes import run
from moonfed.export.binding import read_metadata
from tests.support.server_process import served

from .conftest import Federation

pytestmark = pytest.mark.slow

MODEL = """
from torch import nn
from torchvision.models import mobilenet_v3_small


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = mobilenet_v3_small(weights=None).features[:5]  # of 13 blocks, one of each kind

    def forward(self, pixels):
        return self.features(pixels.expand(-1, 3, -1, -1)).mean(dim=(2, 3))


def build(shape, classes):
    return Encoder(), nn.Linear(40, 32), nn.Linear(32, classes)
"""


def test_a_mobilenet_goes_from_a_bundle_to_an_answer(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "callables" / "small_mobilenet.py").write_text(MODEL)
    bundle, models, test = tmp_path / "bundle", tmp_path / "models", federation.parts / "test.npz"
    run(
        *("moonfed-export", "bundle", "--model", "small_mobilenet:build", "--input", "8x8x1", "--classes", "10"),
        *("--method", "moon", "--set", "epochs=1", "--output", str(bundle)),
    )
    federation.serve()
    federation.enrol("cam-1", "cam-2")
    federation.start_device("cam-1")
    federation.start_device("cam-2")
    federation.start_run(bundle, "r", "--rounds", "1", "--minimum-devices", "2", "--cohort", "all", "--quorum", "100%")
    federation.until_finished("r")
    words = ("r", "--name", "mobilenet", "--data", str(test), "--output", str(models), *federation.operator)
    run("moonfed-export", "repository", *words)
    released = read_metadata((models / "mobilenet" / "1" / "model.onnx").read_bytes())
    assert (released["run"], released["round"], released["model"]) == ("r", "1", "small_mobilenet:build")
    assert (
        released["model_sha256"] != hashlib.sha256((bundle / WEIGHTS_FILE).read_bytes()).hexdigest()
    )  # it has learned
    with np.load(test) as arrays:
        pictures = [tmp_path / f"{number}.png" for number in range(3)]
        for picture, pixels in zip(pictures, arrays["inputs"], strict=False):
            Image.fromarray(pixels[:, :, 0]).save(picture)
    asked = ("moonfed-export", "predict", *map(str, pictures), "--top", "10", "--json")
    with served(models, tmp_path / "log") as server:
        answered = run(*asked, "--server", server.grpc, "--model", "mobilenet")
    alone = run(*asked, "--file", str(models / "mobilenet" / "1" / "model.onnx"))
    found, expected = (json.loads(told)["predictions"] for told in (answered, alone))
    assert [entry["name"] for entry in found] == [str(picture) for picture in pictures]
    for line, other in zip(found, expected, strict=True):
        served_, direct = ({entry["label"]: entry["confidence"] for entry in told["classes"]} for told in (line, other))
        assert served_ == pytest.approx(direct, abs=1e-6), "the protocol's classes have six decimals"
        assert sum(direct.values()) == pytest.approx(1)
