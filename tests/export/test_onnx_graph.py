"""The ONNX graph of a bundle: its initialisers are the manifest's tensors, all of which matter."""

from __future__ import annotations

import dataclasses

import onnx
import pytest

from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import GRAPH_FILE
from moonfed.errors import InvalidInput
from moonfed.export.bundle_builder import build_bundle
from tests.export.conftest import MINE, TABLE

pytestmark = pytest.mark.slow


def test_graph_initialisers_are_the_manifests_tensors_and_two_constants(pictures: Bundle) -> None:
    proto = onnx.ModelProto.FromString(pictures.contents[GRAPH_FILE])
    names = {initialiser.name for initialiser in proto.graph.initializer}
    assert names == {tensor.name for tensor in pictures.manifest.tensors} | {
        "preprocessing.factor",
        "preprocessing.shift",
    }
    assert [entry.name for entry in proto.graph.input] == ["inputs"]
    assert [entry.name for entry in proto.graph.output] == ["probabilities", "embeddings"]
    assert proto.opset_import[0].version == 20


def test_a_tensor_that_does_not_affect_predictions_is_rejected() -> None:
    with pytest.raises(InvalidInput, match=r"tensor 'encoder\.unused\.\w+'"):
        build_bundle(dataclasses.replace(TABLE, model=f"{MINE}:with_unused_layer"))
