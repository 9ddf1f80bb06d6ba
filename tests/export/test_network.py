"""A network's representation and the state that it exchanges."""

from __future__ import annotations

import torch

from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, tensor_specs
from tests.export.conftest import FEATURES
from tests.support.refusals import refused


def test_without_a_head_the_representation_is_the_encoders_output() -> None:
    network = build_network("mlp", FEATURES, class_target(2), projection=None)
    inputs = torch.randn(3, 30)
    assert torch.equal(network.represent(inputs), network.encoder(network.preprocessing(inputs)))
    assert {name.partition(".")[0] for name, _ in network.named_parameters()} == {"encoder", "output_layer"}


def test_state_that_cannot_be_exchanged_is_rejected_by_name() -> None:
    network = build_network("mlp", FEATURES, class_target(2))
    network.output_layer.register_buffer("halved", torch.zeros(1, dtype=torch.float16))
    with refused(InvalidInput, "tensor", "output_layer.halved"):
        tensor_specs(network)
    network = build_network("mlp", FEATURES, class_target(2))
    network.output_layer.register_parameter("again", network.get_parameter("encoder.0.bias"))
    with refused(InvalidInput, "tensor", "output_layer.again"):
        tensor_specs(network)


def test_the_exchanged_state_includes_statistics_but_no_counters(resnet: Network) -> None:
    kinds = {spec.name: spec.kind for spec in tensor_specs(resnet)}
    assert kinds["encoder.1.running_mean"] == kinds["encoder.1.running_var"] == "statistic"
    assert kinds["encoder.1.weight"] == "parameter"
    assert not [name for name in kinds if "num_batches_tracked" in name or name.startswith("preprocessing")]
    assert list(kinds) == sorted(kinds)
