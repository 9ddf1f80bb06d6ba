"""The manifest of a release: everything that devices and the coordinator know about one version, as canonical JSON.

It holds the digests of all files of the version, and the engineer signs it, so trust in its signature is trust in them.
The coordinator stores the files without opening them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from moonfed.blobs.schema import TensorSpec
from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.bundle.manifest import (
    ACCURACY,
    FROZEN_FILE,
    GRAPH_PLAN_FILE,
    PERSONAL_FILE,
    PLAN_FILE,
    InputSpec,
    Metric,
    read_tensor_specs,
    tensors_document,
)
from moonfed.bundle.manifest import MANIFEST_FILE as BUNDLE_MANIFEST_FILE
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput, UntrustedRelease
from moonfed.format_version import known_fields, refuse_unknown_fields, require_readable
from moonfed.models.repository import CONFIG_FILE as CONFIG_FILE
from moonfed.models.repository import LABELS_FILE as LABELS_FILE
from moonfed.models.repository import MODEL_FILE as MODEL_FILE
from moonfed.signing import canonical
from moonfed.signing.bundle_signature import verify
from moonfed.signing.release_signature import SIGNATURE_FILE
from moonfed.signing.statement import RELEASE
from moonfed.signing.trust import Trust
from moonfed.validate import require, require_line, require_whole

FORMAT = "moonfed-release/2"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
VARIANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FLOAT32 = "float32"  # the variant that every release has
CARD_FILE = "MODEL_CARD.md"
BILL_FILE = "bom.cdx.json"
EVALUATION_FILE = "evaluation.json"
WEIGHTS_FILE = "weights.safetensors"
VARIANT_FILES = (MODEL_FILE, CONFIG_FILE, CARD_FILE, BILL_FILE, SIGNATURE_FILE)  # that every variant has
PLAN_FILES = (BUNDLE_MANIFEST_FILE, PLAN_FILE, WEIGHTS_FILE)
OPTIONAL_FILES = (FROZEN_FILE, PERSONAL_FILE, GRAPH_PLAN_FILE)  # of plans with such tensors, or with graphs
MAX_BYTES = 1 << 20  # a table's categories and thousands of classes fit
MAX_VERSION = (1 << 31) - 1
MAX_VARIANTS, MAX_FILES = 8, 16
_SUBJECT = "the release's manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of the float32 variant on the engineer's test data."""

    score: float  # by the manifest's metric
    samples: int
    data_sha256: str  # of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseManifest:
    """One version of a named model; InvalidInput names a wrong field."""

    name: str
    version: int
    created: int  # seconds since the epoch
    run: str
    round: int  # 0: the run's initial weights
    input: InputSpec
    target: TargetSpec
    variants: Mapping[str, Mapping[str, BlobRef]]  # the files of the version's directory, by variant and name
    # PLAN_FILES and OPTIONAL_FILES, with which a device without ONNX Runtime predicts.
    plan: Mapping[str, BlobRef]
    metric: Metric = ACCURACY  # by which versions are compared
    evaluation: Evaluation | None = None
    threshold: float | None = None  # the score above which a sample is unusual, where the model gives scores
    pictures: Mapping[str, Mapping[str, BlobRef]] = field(default_factory=dict)  # that cards show, which devices lack
    personal: tuple[TensorSpec, ...] = ()  # tensors of the graph in place of which each device has its own
    private: bool = False  # its run has differential privacy: devices report no scores
    format: str = FORMAT

    def __post_init__(self) -> None:
        require(self.format == FORMAT, "format", self.format, repr(FORMAT))
        require_release_name("name", self.name)
        require_whole("version", self.version, 1, MAX_VERSION)
        require_whole("created", self.created, 0)
        require_line("run", self.run)
        require_whole("round", self.round, 0)
        require(FLOAT32 in self.variants, "variants", sorted(self.variants), f"names with {FLOAT32!r} among them")
        require(len(self.variants) <= MAX_VARIANTS, "number of variants", len(self.variants), f"up to {MAX_VARIANTS}")
        for variant, files in self.variants.items():
            require(bool(VARIANT.fullmatch(variant)), "variant", variant, "a name such as 'float16'")
            _check_files(f"files of variant {variant!r}", files, VARIANT_FILES)
        _check_files("plan", self.plan, PLAN_FILES)
        plan = set(self.plan).difference(OPTIONAL_FILES)
        require(plan == set(PLAN_FILES), "plan", sorted(self.plan), ", ".join(sorted(PLAN_FILES)))
        for variant, files in self.pictures.items():
            require(variant in self.variants, "variant of pictures", variant, "one of the release's")
            _check_files(f"pictures of variant {variant!r}", files, ())
        if self.evaluation:
            self.metric.require_possible(self.metric.name, self.evaluation.score)
            require_whole("samples", self.evaluation.samples, 1)
        if self.threshold is not None:
            known = math.isfinite(self.threshold) and self.target.kind == "none"
            require(known, "threshold", self.threshold, "a finite number, of a model that gives scores")

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of classes, labels or values."""
        return self.target.names

    @property
    def blobs(self) -> frozenset[BlobRef]:
        """All files of the release, without this manifest and its signature."""
        every = [self.plan, *self.variants.values(), *self.pictures.values()]
        return frozenset(ref for files in every for ref in files.values())

    def files(self, variant: str) -> dict[str, BlobRef]:
        """Return the files of a variant's version directory, by name; raise InvalidInput for an unknown variant."""
        if variant not in self.variants:
            raise InvalidInput(field="variant", value=variant, allowed=f"one of {', '.join(sorted(self.variants))}")
        return dict(self.variants[variant])

    def to_bytes(self) -> bytes:
        """Return the canonical form, whose sha256 is signed."""
        return canonical.encode(
            {
                "format": self.format,
                "name": self.name,
                "version": self.version,
                "created": self.created,
                "run": self.run,
                "round": self.round,
                "input": self.input.to_document(),
                "target": self.target.to_document(),
                "metric": asdict(self.metric),
                "variants": {variant: _document(files) for variant, files in self.variants.items()},
                "plan": _document(self.plan),
                "evaluation": _evaluation_document(self.evaluation),
                **({} if self.threshold is None else {"threshold": float(self.threshold)}),
                "pictures": {variant: _document(files) for variant, files in self.pictures.items()},
                **({"personal": tensors_document(self.personal)} if self.personal else {}),
                **({"private": True} if self.private else {}),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> ReleaseManifest:
        """Read and check a manifest; InvalidInput says what is wrong, VersionMismatch which field is unknown."""
        document = canonical.decode(content, _SUBJECT, MAX_BYTES)
        require_readable(_SUBJECT, document.get("format") if isinstance(document, dict) else None, (FORMAT,))
        try:
            read = _from_document(document)
            again = read.to_bytes()
        except KeyError as error:
            raise InvalidInput(f"{_SUBJECT} lacks the field {error.args[0]!r}") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidInput(f"{_SUBJECT} has a field of the wrong type: {error}") from error
        if again != content:
            refuse_unknown_fields(_SUBJECT, document, canonical.decode(again, _SUBJECT, MAX_BYTES))
            raise InvalidInput(f"{_SUBJECT} has a field of the wrong type")
        return read


def verify_manifest(
    content: bytes, signature: bytes, *, now: float, trust: Trust | None = None
) -> tuple[ReleaseManifest, Trust]:
    """Return a release's manifest and the newest trust file, once the signature is verified; raise UntrustedRelease.

    `trust`: as for `bundle_signature.verify`. Versions may decrease, because a roll-back needs no new signature.
    """
    verified = verify(signature, ref_of_bytes(content).sha256, now=now, trust=trust, signed=RELEASE)
    manifest, statement = ReleaseManifest.from_bytes(content), verified.statement
    if (statement.name, statement.version) != (manifest.name, manifest.version):
        raise UntrustedRelease(
            f"the release is version {manifest.version} of {manifest.name!r}, "
            f"but signed as version {statement.version} of {statement.name!r}"
        )
    return manifest, verified.trust


def require_release_name(field: str, name: str) -> None:
    """Raise InvalidInput unless a released model can have this name, which is also that of a directory."""
    require(bool(NAME.fullmatch(name)), field, name, "up to 63 letters, digits, '.', '-' and '_', such as 'digits'")


def _from_document(document: dict[str, Any]) -> ReleaseManifest:
    evaluation = document["evaluation"]
    return ReleaseManifest(
        name=str(document["name"]),
        version=int(document["version"]),
        created=int(document["created"]),
        run=str(document["run"]),
        round=int(document["round"]),
        input=InputSpec.from_document(document["input"]),
        target=TargetSpec.from_document(document["target"]),
        metric=Metric(**known_fields(Metric, document["metric"])),
        variants={str(variant): _refs(files) for variant, files in document["variants"].items()},
        plan=_refs(document["plan"]),
        evaluation=None
        if evaluation is None
        else Evaluation(
            score=float(evaluation["score"]),
            samples=int(evaluation["samples"]),
            data_sha256=str(evaluation["data_sha256"]),
        ),
        threshold=float(document["threshold"]) if "threshold" in document else None,
        pictures={str(variant): _refs(files) for variant, files in document["pictures"].items()},
        personal=read_tensor_specs(document.get("personal", ())),
        private=bool(document.get("private", False)),
    )


def _evaluation_document(evaluation: Evaluation | None) -> dict[str, object] | None:
    if evaluation is None:
        return None
    return {
        "score": float(evaluation.score),
        "samples": evaluation.samples,
        "data_sha256": evaluation.data_sha256,
    }


def _document(files: Mapping[str, BlobRef]) -> dict[str, object]:
    return {name: {"sha256": ref.sha256, "size": ref.size} for name, ref in files.items()}


def _refs(document: Mapping[str, Mapping[str, Any]]) -> dict[str, BlobRef]:
    return {str(name): BlobRef.from_document(ref) for name, ref in document.items()}


def _check_files(field: str, files: Mapping[str, BlobRef], needed: tuple[str, ...]) -> None:
    missing = sorted(set(needed) - set(files))
    require(not missing, field, sorted(files), f"names with {', '.join(missing)} among them")
    require(len(files) <= MAX_FILES, f"number of {field}", len(files), f"up to {MAX_FILES}")
    for name in files:
        require(bool(FILE.fullmatch(name)), f"name in {field}", name, "letters, digits, '.', '-' and '_'")
