from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import TensorProto, helper

from moonfed.blobs import ref_of_bytes
from moonfed.bundle import Bundle
from moonfed.errors import Corrupt, InvalidInput
from moonfed.manifest import GRAPH_FILE, MANIFEST_FILE
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask, make_bundle


def with_graph(graph: bytes) -> Bundle:
    bundle = make_bundle()
    manifest = replace(bundle.manifest, files={**bundle.manifest.files, GRAPH_FILE: ref_of_bytes(graph)})
    return Bundle(manifest, {**bundle.contents, GRAPH_FILE: graph, MANIFEST_FILE: manifest.to_bytes()})


def test_a_graph_that_names_another_file_starts_no_run(fleet: Fleet) -> None:
    stolen = TensorProto(name="stolen", data_location=TensorProto.EXTERNAL)
    stolen.external_data.add(key="location", value="../operator/key.pem")
    graph = helper.make_model(helper.make_graph([], "tested", [], [], initializer=[stolen])).SerializeToString()
    with pytest.raises(InvalidInput, match=r"model\.onnx has a tensor 'stolen' whose data are in another file"):
        fleet.start(bundle=with_graph(graph))
    with pytest.raises(Corrupt, match=r"model\.onnx is not an ONNX model, or a damaged one"):
        fleet.start(bundle=with_graph(b"\xff"))
    assert not ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest()).runs
