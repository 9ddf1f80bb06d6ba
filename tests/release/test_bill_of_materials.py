"""The bill of materials is valid CycloneDX and names the model's parts and packages."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from importlib import metadata, resources
from typing import Any

import onnxruntime
import torch
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from moonfed.bundle.manifest import FILES, Pretrained
from moonfed.release.bill_of_materials import bill_of_materials
from moonfed.release.model_card import model_card
from moonfed.release.model_facts import ModelFacts
from moonfed.release.model_file import CheckedModel
from moonfed.release.publish import Candidate, gather_facts
from tests.release.test_model_facts import results_of
from tests.support.control_service import Control
from tests.support.graph_manifest import with_graphs
from tests.support.trained_model import Trained


def schema_errors(document: object) -> list[str]:
    """Return the violations of CycloneDX's JSON schema."""
    folder = resources.files("cyclonedx.schema._res")
    read = {
        name: json.loads((folder / file).read_text())
        for name, file in (
            ("bom-1.6.schema.json", "bom-1.6.SNAPSHOT.schema.json"),
            ("spdx.schema.json", "spdx.SNAPSHOT.schema.json"),
            ("spdx.SNAPSHOT.schema.json", "spdx.SNAPSHOT.schema.json"),
            ("jsf-0.82.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json"),
        )
    }
    registry: Registry[Any] = Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}", Resource.from_contents(schema)) for name, schema in read.items()
    )
    return [
        error.message for error in Draft7Validator(read["bom-1.6.schema.json"], registry=registry).iter_errors(document)
    ]


def test_the_bill_is_valid_cyclonedx_with_model_parts_and_packages(
    facts: ModelFacts, checked: CheckedModel, trained: Trained, trained_run: Control
) -> None:
    document = json.loads(bill_of_materials(facts))
    assert schema_errors(document) == []
    assert schema_errors({**document, "components": [{"type": "spoon", "name": "x"}]})  # the schema was found
    model = document["metadata"]["component"]
    assert (model["type"], model["name"], model["version"]) == ("machine-learning-model", "digits", "1")
    assert model["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(checked.graph).hexdigest()}]
    assert {"name": "moonfed:method", "value": "moon"} in model["properties"]
    digests = {entry["name"]: entry["hashes"][0]["content"] for entry in document["components"] if "hashes" in entry}
    files = trained.bundle.manifest.files
    assert [digests[name] for name in ("training plan", "graph template", "initial weights")] == [
        files[name].sha256 for name in FILES
    ]
    assert digests["weights"] == trained_run.run.model.sha256
    assert digests["bundle manifest"] == trained_run.run.manifest.sha256
    packages = {entry["name"]: entry["version"] for entry in document["components"] if "purl" in entry}
    assert packages["torch"] == torch.__version__
    for name in ("numpy", "onnx", "moonfed"):
        assert packages[name] == metadata.version(name)
    assert onnxruntime.__version__ in (packages.get("onnxruntime"), packages.get("onnxruntime-gpu"))
    (depends,) = (entry for entry in document["dependencies"] if entry["ref"] == model["bom-ref"])
    assert set(depends["dependsOn"]) == {entry["bom-ref"] for entry in document["components"]}
    parameters = model["modelCard"]["modelParameters"]
    assert parameters["inputs"] == [{"format": "TYPE_UINT8 [-1, 8, 8, 1]"}]
    assert parameters["outputs"] == [{"format": "TYPE_FP32 [-1, 10]"}]
    assert (parameters["approach"], parameters["modelArchitecture"]) == ({"type": "supervised"}, "cnn")
    measured = model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert {"type": "accuracy", "value": f"{results_of(facts).score.value:.6f}"} in measured
    assert "timestamp" not in document["metadata"]


def test_the_bill_of_a_file_without_a_run_is_valid(checked: CheckedModel) -> None:
    facts = gather_facts("digits", 3, Candidate(graph=checked.graph, where="model.onnx", round=1), None)
    document = json.loads(bill_of_materials(facts))
    assert schema_errors(document) == []
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", document["serialNumber"])


def test_pretrained_weights_are_an_ancestor_of_the_model_and_stand_in_its_card(facts: ModelFacts) -> None:
    assert facts.history is not None
    start = Pretrained(
        source="torchvision resnet18", sha256="ab" * 32, tensors=5, licence="BSD-3-Clause", url="https://example.org/w"
    )
    manifest = replace(with_graphs(facts.history.manifest), pretrained=start)
    from_weights = replace(facts, history=replace(facts.history, manifest=manifest))
    document = json.loads(bill_of_materials(from_weights))
    assert schema_errors(document) == []
    assert "training plan as graphs" in {part["name"] for part in document["components"]}
    (ancestor,) = document["metadata"]["component"]["pedigree"]["ancestors"]
    assert (ancestor["name"], ancestor["hashes"][0]["content"]) == (start.source, start.sha256)
    assert ancestor["licenses"] == [{"license": {"name": start.licence}}]
    assert ancestor["externalReferences"] == [{"type": "distribution", "url": start.url}]
    assert f"| starts from | {start.describe(len(manifest.tensors))} |" in model_card(from_weights)
