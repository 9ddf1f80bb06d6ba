"""Preprocessing inside a model: scaling, normalisation, and enlargement of small images."""

from __future__ import annotations

import numpy as np
import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.export.preprocessing import build_preprocessing
from tests.export.conftest import FEATURES, IMAGE


def test_images_are_scaled_and_normalised_per_channel() -> None:
    module = build_preprocessing(IMAGE, mean=(0.1, 0.2, 0.3), deviation=(0.5, 0.25, 2.0))
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    expected = (pixels / 255.0 - np.array([0.1, 0.2, 0.3])) / np.array([0.5, 0.25, 2.0])
    assert np.abs(module(torch.from_numpy(pixels)).numpy() - expected.transpose(0, 3, 1, 2)).max() < 1e-5
    assert not module.state_dict()


def test_small_images_are_enlarged_between_pixel_centres() -> None:
    module = build_preprocessing(InputSpec(kind="image", shape=(8, 20, 1)))
    pixels = np.random.default_rng(0).integers(0, 256, (1, 8, 20, 1), dtype=np.uint8)
    enlarged = module(torch.from_numpy(pixels)).numpy()
    assert enlarged.shape == (1, 1, 32, 20)
    centres = (np.arange(32) + 0.5) * 8 / 32 - 0.5
    for column in range(20):
        expected = np.interp(centres, np.arange(8), pixels[0, :, column, 0] / 255.0)
        assert np.abs(enlarged[0, 0, :, column] - expected).max() < 1e-6


def test_each_feature_is_normalised_by_its_own_statistics() -> None:
    mean, deviation = np.arange(30.0), np.arange(1.0, 31.0)
    module = build_preprocessing(FEATURES, mean=list(mean), deviation=list(deviation))
    values = np.random.default_rng(0).standard_normal((5, 30)).astype(np.float32)
    assert np.abs(module(torch.from_numpy(values)).numpy() - (values - mean) / deviation).max() < 1e-5
