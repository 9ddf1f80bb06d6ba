"""The choice between joint and separate encoders, and the separate ones."""

from __future__ import annotations

import pytest
import torch

from moonfed.export.joint_encoders import JointEncoders
from moonfed.export.network import Network
from moonfed.export.reference_encoders import SeparateEncoders, reference_encoders
from tests.export.conftest import SMALL_IMAGE, batches
from tests.support.eager_reference import network_with
from tests.support.plan_rounds import largest_difference, other_models


@pytest.mark.parametrize(
    ("kind", "encoders", "expected"),
    [
        ("cnn", 2, JointEncoders),
        ("cnn", 1, SeparateEncoders),  # nothing to join
        ("cnn", 0, SeparateEncoders),
        ("resnet", 2, SeparateEncoders),
    ],
)
def test_encoders_are_joined_where_it_helps(
    kind: str, encoders: int, expected: type[object], request: pytest.FixtureRequest
) -> None:
    assert type(reference_encoders(request.getfixturevalue(kind), encoders)) is expected


def test_separate_encoders_hold_their_own_models(resnet: Network) -> None:
    models = other_models(resnet, 3)
    separate = reference_encoders(resnet, 3)
    for index in reversed(range(3)):
        separate.load(index, models[index])
    samples = resnet.preprocessing(batches(SMALL_IMAGE, 1, 5)[0][0])
    expected = [network_with(resnet, model).eval().encode(samples).detach() for model in models]
    for used in (1, 2, 3):
        found = separate.encode(samples, used)
        assert torch.equal(found, torch.stack(expected[:used], dim=1))
    assert largest_difference(expected[:1], expected[1:2]) > 0.001
