"""The bill of materials (SBOM) of a released model in CycloneDX JSON 1.6: the model, its sources and the packages used.

The same facts and installed packages give the same bytes: the serial number is derived from the model, and the
timestamp, which the format does not require, is omitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType, Pedigree
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import (
    CLASSIFICATION,
    FROZEN_FILE,
    GRAPH_FILE,
    GRAPH_PLAN_FILE,
    PERSONAL_FILE,
    PLAN_FILE,
    WEIGHTS_FILE,
    Manifest,
    Pretrained,
)
from moonfed.release.model_facts import EvaluationResults, ModelFacts
from moonfed.version import RELEASE

BILL_FILE = "bom.cdx.json"
_ABOUT = {
    PLAN_FILE: ("training plan", "the program that devices trained with"),
    GRAPH_PLAN_FILE: ("training plan as graphs", "the same program as graphs of operators"),
    GRAPH_FILE: ("graph template", "the graph that the weights were bound into"),
    WEIGHTS_FILE: ("initial weights", "the bundle's weights"),
    FROZEN_FILE: ("frozen weights", "weights of the bundle that were not trained"),
    PERSONAL_FILE: ("initial personal weights", "weights of the bundle in place of which each device has its own"),
}
_APPROACHES = {"none": "unsupervised", "next": "self-supervised"}  # by kind of target
_TOOLS = ("onnx", "onnxruntime", "onnxruntime-gpu", "numpy")  # one onnxruntime package is installed


def bill_of_materials(facts: ModelFacts) -> bytes:
    """Return the bill of materials as UTF-8."""
    model = _model(facts)
    parts = [*_parts(facts), *_packages(facts)]
    bill = Bom(serial_number=uuid5(NAMESPACE_OID, facts.sha256), components=parts)
    bill.metadata.component = model
    bill.register_dependency(model, parts)
    written = make_outputter(bill, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    document: dict[str, Any] = json.loads(written)
    del document["metadata"]["timestamp"]
    document["metadata"]["component"]["modelCard"] = _card(facts)  # the library does not support it yet
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _model(facts: ModelFacts) -> Component:
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=f"model:{facts.sha256}",
        name=facts.name,
        version=str(facts.version),
        hashes=_sha256(facts.sha256),
        properties=[Property(name=f"moonfed:{key}", value=value) for key, value in sorted(facts.metadata.items())],
        pedigree=_pedigree(facts.history.manifest.pretrained if facts.history else None),
    )


def _pedigree(start: Pretrained | None) -> Pedigree | None:
    """Return the weights that training started from as the model's ancestor; None if they were random."""
    if start is None:
        return None
    ancestor = Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=f"pretrained:{start.sha256}",
        name=start.source,
        hashes=_sha256(start.sha256),
        licenses=[DisjunctiveLicense(name=start.licence)] if start.licence else [],
        external_references=[ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(start.url))]
        if start.url
        else [],
    )
    return Pedigree(ancestors=[ancestor])


def _parts(facts: ModelFacts) -> Iterable[Component]:
    """Yield the bundle's files and the round's weights."""
    if facts.history:
        for name, ref in sorted(facts.history.manifest.files.items()):
            yield _part(*_ABOUT[name], ref)
    if weights := facts.metadata.get("model_sha256"):
        yield _part("weights", f"the global model of round {facts.metadata['round']}", BlobRef(weights, 0))
    if manifest := facts.metadata.get("manifest_sha256"):
        yield _part("bundle manifest", "the method, its settings and the digests of all files", BlobRef(manifest, 0))


def _packages(facts: ModelFacts) -> Iterable[Component]:
    yield _package("moonfed", RELEASE)
    if facts.history:
        yield _package("torch", facts.history.manifest.plan.built_with_torch)
    for name in _TOOLS:
        if release := _installed(name):
            yield _package(name, release)


def _part(name: str, about: str, ref: BlobRef) -> Component:
    return Component(
        type=ComponentType.FILE,
        bom_ref=f"{name}:{ref.sha256}",
        name=name,
        description=about,
        hashes=_sha256(ref.sha256),
    )


def _package(name: str, release: str) -> Component:
    url = PackageURL(type="pypi", name=name, version=release)
    return Component(type=ComponentType.LIBRARY, bom_ref=url.to_string(), name=name, version=release, purl=url)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _sha256(digest: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest)]


def _card(facts: ModelFacts) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "task": facts.metadata.get("task", CLASSIFICATION.name),
        "inputs": [{"format": f"{tensor.type_name} {list(tensor.shape)}"} for tensor in facts.interface.inputs],
        "outputs": [{"format": f"{tensor.type_name} {list(tensor.shape)}"} for tensor in facts.interface.outputs],
    }
    if facts.history:
        parameters |= _approach(facts.history.manifest)
    card: dict[str, Any] = {"modelParameters": parameters}
    if facts.results:
        card["quantitativeAnalysis"] = {"performanceMetrics": _metrics(facts.results)}
    return card


def _approach(manifest: Manifest) -> dict[str, Any]:
    approach = _APPROACHES.get(manifest.target.kind, "supervised")
    return {"approach": {"type": approach}, "modelArchitecture": manifest.model}


def _metrics(results: EvaluationResults) -> list[dict[str, str]]:
    overall = [{"type": name, "value": f"{value:.6f}"} for name, value in results.score.metrics.items()]
    by_class = [
        {"type": kind, "value": f"{value:.6f}", "slice": entry.name}
        for entry in results.classes
        for kind, value in (("precision", entry.precision), ("recall", entry.recall))
        if value is not None
    ]
    return overall + by_class
