"""Joint encoders, compared with the same networks one after another."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.export.joint_encoders import MOST_ENCODERS, joint_encoders
from moonfed.export.model_zoo import PROJECTION, build_network
from moonfed.export.network import Network
from moonfed.export.preprocessing import ImagePreprocessing
from tests.support.eager_reference import network_with
from tests.support.plan_rounds import largest_difference, other_models

IMAGE = InputSpec(kind="image", shape=(20, 18, 3))
ROUNDING = 1e-5


def network_of(*encoder: nn.Module, head: nn.Module | None = None) -> Network:
    preprocessing = ImagePreprocessing(IMAGE.shape, [0.5] * 3, [0.25] * 3)  # type: ignore[arg-type]
    return Network(preprocessing, nn.Sequential(*encoder), head or nn.Identity(), nn.Identity())


def strided() -> Network:
    """Build what the paper's CNN lacks: strides, padding, dilation, nesting, dropout, and a head that flattens."""
    first = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Dropout(), nn.ReLU())
    head = nn.Sequential(nn.Flatten(), nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 5))
    return network_of(first, nn.Conv2d(4, 6, 3, dilation=2), nn.MaxPool2d(2), nn.Conv2d(6, 6, (2, 1)), head=head)


JOINED = {
    "cnn": lambda: build_network("cnn", IMAGE, class_target(10), seed=1),
    "cnn without a head": lambda: build_network("cnn", IMAGE, class_target(10), projection=None, seed=1),
    "strided": strided,
}
NOT_JOINED = {
    "residual": lambda: build_network(
        "tests.support.residual_network:small_resnet", IMAGE, class_target(10), projection=PROJECTION, seed=1
    ),
    "mlp": lambda: build_network("mlp", InputSpec(kind="features", shape=(30,)), class_target(2)),
    "batch norm": lambda: network_of(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)),
    "groups": lambda: network_of(nn.Conv2d(3, 6, 3, groups=3)),
    "no bias": lambda: network_of(nn.Conv2d(3, 4, 3, bias=False)),
    "linear without bias": lambda: network_of(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(1152, 5, bias=False)),
    "linear layer of pixels": lambda: network_of(nn.Linear(18, 5)),
    "linear layer of rows": lambda: network_of(nn.Conv2d(3, 4, 3), nn.Linear(16, 5)),
    "circular padding": lambda: network_of(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")),
    "padding by name": lambda: network_of(nn.Conv2d(3, 4, 3, padding="same")),
    "partly flat": lambda: network_of(nn.Conv2d(3, 4, 3), nn.Flatten(2)),
    "three wide pool": lambda: network_of(nn.Conv2d(3, 4, 3), nn.MaxPool2d(3)),
    "no layer with weights": lambda: network_of(nn.ReLU()),
}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("encoders", [2, 4])
@pytest.mark.parametrize("name", JOINED)
def test_joint_encoders_equal_separate_ones(name: str, encoders: int, memory_format: torch.memory_format) -> None:
    network = JOINED[name]()
    models = other_models(network, encoders)
    joint = joint_encoders(network, encoders)
    assert joint is not None
    joint = joint.to(memory_format=memory_format)  # type: ignore[call-overload]
    for index in reversed(range(encoders)):
        joint.load(index, models[index])
    pixels = torch.randint(0, 256, (7, *IMAGE.shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    samples = network.preprocessing(pixels, memory_format is torch.channels_last)
    expected = [network_with(network, model).eval().encode(samples).detach() for model in models]
    assert largest_difference(expected[:1], expected[1:2]) > 100 * ROUNDING
    for used in range(1, encoders + 1):  # a device's first rounds have fewer previous models
        found = joint.encode(samples, used)
        assert found.shape == (7, used, expected[0].size(1))
        assert largest_difference(list(found.unbind(1)), expected[:used]) < ROUNDING


@pytest.mark.parametrize("name", NOT_JOINED)
def test_other_networks_are_not_joined(name: str) -> None:
    assert joint_encoders(NOT_JOINED[name](), 2) is None


def test_many_encoders_are_not_joined() -> None:
    network = JOINED["cnn"]()
    assert joint_encoders(network, MOST_ENCODERS) is not None
    assert joint_encoders(network, MOST_ENCODERS + 1) is None


def test_a_model_of_another_shape_is_rejected() -> None:
    network = JOINED["cnn"]()
    joint = joint_encoders(network, 2)
    assert joint is not None
    with pytest.raises(ValueError, match="another shape"):
        joint.load(0, [torch.zeros(1) for _ in other_models(network, 1)[0]])
