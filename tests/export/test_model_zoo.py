from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed.errors import InvalidInput
from moonfed.export.model_zoo import build_network
from moonfed.export.network import tensor_specs
from moonfed.export.preprocessing import build_preprocessing
from moonfed.manifest import InputSpec
from tests.export.conftest import FEATURES, IMAGE


def test_the_papers_cnn_has_92626_parameters() -> None:
    network = build_network("cnn", IMAGE, 10)
    assert sum(parameter.numel() for parameter in network.parameters()) == 92_626
    assert network.represent(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape == (2, 256)


@pytest.mark.parametrize(
    ("projection", "parameters"),
    [
        (64, 61_156 + 84 * 84 + 84 + 84 * 64 + 64 + 64 * 10 + 10),
        (128, 61_156 + 84 * 84 + 84 + 84 * 128 + 128 + 128 * 10 + 10),
        (None, 61_156 + 84 * 10 + 10),
    ],
)
def test_the_head_can_have_another_width_or_be_absent(projection: int | None, parameters: int) -> None:
    # LeNet-5 for three channels has 62,006 parameters, of which 850 are the output layer's
    network = build_network("cnn", IMAGE, 10, projection=projection)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert network.represent(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape == (2, projection or 84)


def test_without_a_head_the_representation_is_the_encoders_output() -> None:
    network = build_network("mlp", FEATURES, 2, projection=None)
    inputs = torch.randn(3, 30)
    assert torch.equal(network.represent(inputs), network.encoder(network.preprocessing(inputs)))
    assert {name.partition(".")[0] for name, _ in network.named_parameters()} == {"encoder", "output_layer"}


def test_invalid_heads_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="projection is 0; it must be a whole number from 1"):
        build_network("cnn", IMAGE, 10, projection=0)
    with pytest.raises(InvalidInput, match="projection is None and model 'm:f'; such a model has its own head"):
        build_network("m:f", IMAGE, 10, projection=None)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (16, 40, 3), (33, 17, 4), (8, 64, 3)])
def test_the_cnn_accepts_any_size_and_number_of_channels(shape: tuple[int, int, int]) -> None:
    network = build_network("cnn", InputSpec(kind="image", shape=shape), 7)
    assert network(torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, 7)


@pytest.mark.parametrize(("model", "head"), [("resnet18", 512), ("resnet50", 2048)])
def test_the_resnets_do_not_shrink_small_images_at_first(model: str, head: int) -> None:
    encoder = build_network(model, InputSpec(kind="image", shape=(32, 32, 2)), 10)
    sizes = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
    assert sizes["encoder.conv1.weight"] == (64, 2, 3, 3)
    assert sizes["projection_head.0.weight"] == (head, head)
    assert sizes["projection_head.2.weight"] == (256, head)
    assert sizes["output_layer.weight"] == (10, 256)
    seen: list[torch.Size] = []
    first_block = encoder.get_submodule("encoder.layer1")
    first_block.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape))
    encoder.eval()(torch.zeros(1, 32, 32, 2, dtype=torch.uint8))
    assert seen == [torch.Size((1, 64, 32, 32))]


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


def test_state_that_cannot_be_exchanged_is_rejected_by_name() -> None:
    network = build_network("mlp", FEATURES, 2)
    network.output_layer.register_buffer("halved", torch.zeros(1, dtype=torch.float16))
    with pytest.raises(InvalidInput, match=r"tensor 'output_layer\.halved' of the model has dtype torch\.float16"):
        tensor_specs(network)
    network = build_network("mlp", FEATURES, 2)
    network.output_layer.register_parameter("again", network.get_parameter("encoder.0.bias"))
    with pytest.raises(InvalidInput, match=r"tensor 'output_layer\.again' of the model is also 'encoder\.0\.bias'"):
        tensor_specs(network)


def test_torchvision_imports_in_a_new_process_without_a_warning() -> None:
    code = "from moonfed.export.torchvision_import import import_torchvision as i; i().models.resnet18(weights=None)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_exception_in_a_custom_model_is_reported_with_its_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_broken_model.py").write_text("def boom(shape, classes):\n    return {}['layers']\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match=r"raised KeyError in .*my_broken_model\.py, line 2: 'layers'"):
        build_network("my_broken_model:boom", IMAGE, 10)
