from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput
from moonfed.export.model_zoo import build_network
from tests.export.conftest import IMAGE
from tests.support.refusals import refused


def test_the_papers_cnn_has_92626_parameters() -> None:
    network = build_network("cnn", IMAGE, class_target(10))
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
    network = build_network("cnn", IMAGE, class_target(10), projection=projection)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert network.represent(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape == (2, projection or 84)


def test_lazy_layers_follow_from_the_seed_too() -> None:
    model, before = "tests.support.faulty_networks:lazy", torch.random.get_rng_state()
    one, same, other = (build_network(model, IMAGE, class_target(10), seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["encoder.3.weight"], other["encoder.3.weight"])
    assert torch.equal(before, torch.random.get_rng_state())


def test_invalid_heads_are_rejected() -> None:
    with refused(InvalidInput, "projection", 0):
        build_network("cnn", IMAGE, class_target(10), projection=0)
    with refused(InvalidInput, "projection", None):
        build_network("m:f", IMAGE, class_target(10), projection=None)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (16, 40, 3), (33, 17, 4), (8, 64, 3)])
def test_the_cnn_accepts_any_size_and_number_of_channels(shape: tuple[int, int, int]) -> None:
    network = build_network("cnn", InputSpec(kind="image", shape=shape), class_target(7))
    assert network(torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, 7)


@pytest.mark.parametrize(("model", "head"), [("resnet18", 512), ("resnet50", 2048)])
def test_the_resnets_do_not_shrink_small_images_at_first(model: str, head: int) -> None:
    encoder = build_network(model, InputSpec(kind="image", shape=(32, 32, 2)), class_target(10))
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


@pytest.mark.slow
def test_torchvision_imports_in_a_new_process_without_a_warning() -> None:
    code = "from moonfed.export.torchvision_import import import_torchvision as i; i().models.resnet18(weights=None)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_exception_in_a_custom_model_is_reported_with_its_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_broken_model.py").write_text("def boom(shape, classes):\n    return {}['layers']\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match=r"KeyError in .*my_broken_model\.py, line 2"):
        build_network("my_broken_model:boom", IMAGE, class_target(10))
