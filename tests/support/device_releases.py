"""Small real releases, as an engineer would make them for the bundles of the device's tests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.edge_client.state.release_files import NewRelease
from moonfed.models.release_manifest import FLOAT32, PLAN_FILES, ReleaseManifest
from moonfed.release.triton_config import labels_text, new_config, read_interface, to_text
from moonfed.signing.bundle_signature import sign
from moonfed.signing.statement import RELEASE, Statement
from moonfed.signing.trust import TrustChain
from moonfed.transport.client import to_message
from moonfed.v1 import fleet_pb2
from tests.support.model_repositories import graph
from tests.support.signatures import CHAIN, FAR, key

CLASSES = ("left", "middle", "right")
FEATURES = InputSpec(kind="features", shape=(6,))


def classifier(spec: InputSpec = FEATURES, classes: int = 3, *, good: bool = True, seed: int = 0) -> bytes:
    """Build probabilities = softmax(inputs × weights); a good one finds the centres of `write_samples`."""
    size = int(np.prod(spec.shape))
    weights = np.random.default_rng(seed).normal(size=(size, classes)) / 10
    weights[:classes] += (1 if good else -1) * np.eye(min(size, classes), classes)
    kind = TensorProto.FLOAT if spec.kind == "features" else TensorProto.UINT8
    nodes = [
        helper.make_node("Cast", ["inputs"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["numbers"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    inputs = [helper.make_tensor_value_info("inputs", kind, ["N", *spec.shape])]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", classes])]
    return graph(nodes, inputs, outputs, [numpy_helper.from_array(weights.astype(np.float32), "weights")])


def with_wrong_operator(content: bytes) -> bytes:
    """Return a graph with an operator that no runtime has."""
    return content.replace(b"Softmax", b"Hardmin")


@dataclass(frozen=True, kw_only=True)
class SignedRelease:
    """One signed version, with the content of all its files."""

    manifest: ReleaseManifest
    signature: bytes
    contents: Mapping[BlobRef, bytes] = field(repr=False)

    @property
    def manifest_ref(self) -> BlobRef:
        return ref_of_bytes(self.manifest.to_bytes())

    def put_into(self, blobs: BlobDirectory) -> SignedRelease:
        for content in (*self.contents.values(), self.signature, self.manifest.to_bytes()):
            blobs.put_bytes(content)
        return self

    def target(self, deployment: int = 1, **fields: Any) -> fleet_pb2.TargetRelease:
        usual: dict[str, Any] = {"variant": FLOAT32, "max_drop": 1.0}
        return fleet_pb2.TargetRelease(
            name=self.manifest.name,
            deployment=deployment,
            version=self.manifest.version,
            manifest=to_message(self.manifest_ref),
            signature=to_message(ref_of_bytes(self.signature)),
            **(usual | fields),
        )

    def files(self, directory: Path, deployment: int = 1, *, variant: str = FLOAT32, plan: bool = False) -> NewRelease:
        """Write what a device fetches, and return it."""
        blobs = BlobDirectory(directory)
        self.put_into(blobs)
        return NewRelease(
            manifest=self.manifest,
            manifest_file=blobs.path(self.manifest_ref.sha256),
            variant=variant,
            deployment=deployment,
            files={name: blobs.path(ref.sha256) for name, ref in self.manifest.files(variant).items()},
            plan_files={name: blobs.path(ref.sha256) for name, ref in self.manifest.plan.items()} if plan else {},
        )


def make_release(
    version: int = 1,
    *,
    name: str = "digits",
    model: bytes | None = None,
    spec: InputSpec = FEATURES,
    classes: tuple[str, ...] = CLASSES,
    plan: Mapping[str, bytes] | None = None,
    variants: Mapping[str, bytes] | None = None,
    config: str = "",
    signed_as: tuple[str, int] | None = None,
    expires: int = FAR,
    keys: tuple[int, ...] = (1,),
    chain: TrustChain = CHAIN,
    private: bool = False,
) -> SignedRelease:
    """Make a release; by default a good classifier with features. `variants`: further ONNX files by variant."""
    usable = classifier(spec, len(classes))
    graphs = {FLOAT32: usable if model is None else model, **(variants or {})}
    contents: dict[BlobRef, bytes] = {}

    def ref(content: bytes) -> BlobRef:
        contents[ref_of_bytes(content)] = content
        return ref_of_bytes(content)

    text = config or config_of(name, usable)
    shared = {"config.pbtxt": text.encode(), "labels.txt": labels_text(classes).encode()}
    documents = {"MODEL_CARD.md": b"# a card", "bom.cdx.json": b"{}", "model.sig": b"{}"}
    manifest = ReleaseManifest(
        name=name,
        version=version,
        created=1,
        run="tested",
        round=1,
        input=spec,
        target=class_target(classes),
        variants={
            variant: {file: ref(content) for file, content in {**shared, **documents, "model.onnx": model_}.items()}
            for variant, model_ in graphs.items()
        },
        plan={file: ref(content) for file, content in (plan or dict.fromkeys(PLAN_FILES, b"no plan")).items()},
        private=private,
    )
    content = manifest.to_bytes()
    subject, number = signed_as or (name, version)
    statement = Statement(name=subject, version=number, manifest=hashlib.sha256(content).hexdigest(), expires=expires)
    signature = sign(statement, [key(each) for each in keys], chain, RELEASE).to_bytes()
    return SignedRelease(manifest=manifest, signature=signature, contents=contents)


def config_of(name: str, model: bytes) -> str:
    """Return the configuration of a release."""
    config = new_config(name, read_interface(model, name), labelled=True, max_batch_size=32, instances=1)
    config.ClearField("version_policy")
    return to_text(config)
