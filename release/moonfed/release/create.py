"""The making of a release on the engineer's machine: from a run's model to signed files on the coordinator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.bundle.manifest import ACCURACY, MANIFEST_FILE, Manifest, Metric, parts_of, plan_files
from moonfed.client import Release, Run
from moonfed.control.runs import Round
from moonfed.data.data_set import DataSet
from moonfed.data.source import Source
from moonfed.errors import AlreadyExists, InvalidInput, NotFound, UntrustedRelease, WrongState
from moonfed.export.binding import read_metadata, with_metadata
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.models.release_manifest import (
    BILL_FILE,
    CARD_FILE,
    CONFIG_FILE,
    EVALUATION_FILE,
    FLOAT32,
    LABELS_FILE,
    MODEL_FILE,
    WEIGHTS_FILE,
    Evaluation,
    ReleaseManifest,
    require_release_name,
)
from moonfed.release.bill_of_materials import bill_of_materials
from moonfed.release.calibration import Calibration, read_calibration
from moonfed.release.model_card import model_card
from moonfed.release.model_facts import EvaluationResults, ModelFacts, evaluate
from moonfed.release.model_file import CheckedModel, check_on
from moonfed.release.publish import Candidate, candidate_of_run, gather_facts, require_runnable
from moonfed.release.quality import anomaly_threshold
from moonfed.release.repository import INSTANCES, MAX_BATCH_SIZE
from moonfed.release.triton_config import labels_text, new_config, to_text
from moonfed.release.variants import VariantOptions, make_variants
from moonfed.signing.bundle_signature import sign
from moonfed.signing.key_files import Signer
from moonfed.signing.release_directory import subject_of
from moonfed.signing.release_signature import SIGNATURE_FILE, sign_release
from moonfed.signing.statement import RELEASE, Statement
from moonfed.validate import require_positive

DAY = 24 * 3600
MAX_DAYS = 36_500.0
ATTEMPTS = 5  # while other engineers create the same version


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    """The content of a new release."""

    name: str
    data: Source  # samples with labels, on which the model is checked, evaluated and its variants judged
    round: int | None = None  # None: the newest
    variants: VariantOptions = field(default_factory=VariantOptions)
    calibration: Source | None = None
    expires_days: float = 365.0
    clock: Callable[[], float] = time.time
    best: bool = False  # the round with the best accuracy of those that were evaluated, in place of `round`

    def __post_init__(self) -> None:
        if self.best and self.round is not None:
            raise InvalidInput(field="round", value=self.round, rest="; with --best it must not be given")
        require_release_name("name", self.name)
        require_positive("expires-days", self.expires_days)
        if self.expires_days > MAX_DAYS:
            raise InvalidInput(
                f"expires-days is {self.expires_days:g}; it must be at most {MAX_DAYS:g}",
                field="expires-days",
                value=self.expires_days,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedRelease:
    """A release that was created, and why variants were dropped."""

    release: Release
    dropped: Mapping[str, str]  # reason by variant


def create_release(
    runs: CoordinatorClient, run: str, options: ReleaseOptions, signer: Signer, on_step: Callable[[str], None]
) -> CreatedRelease:
    """Make the next version of a release from a run's model, and upload it.

    Raises InvalidInput for data without labels, UntrustedRelease if the keys do not reach their trust file's threshold,
    and what `check_on` and the coordinator raise.
    """
    _require_threshold(signer)
    found = runs.run(run)
    _require_ended(found)
    manifest = runs.manifest(found)
    _require_possible(manifest, options)
    samples = options.data.read(manifest.input, manifest.target)
    on_step("comparing graph and plan")
    number = best_round(run, runs.rounds(run), manifest.metric) if options.best else options.round
    checked = check_on(runs, found, replace(samples, targets=None), round_number=number)
    threshold = anomaly_threshold(checked.graph, samples) if manifest.target.kind == "none" else None
    if threshold is not None:
        entries = {**read_metadata(checked.graph), "threshold": f"{threshold:g}"}
        checked = replace(checked, graph=with_metadata(checked.graph, entries))
    graphs, dropped = _variants(checked, options, samples, on_step)
    candidate = candidate_of_run(runs, checked)
    plan = _plan_files(runs, checked)
    if not manifest.personal:
        on_step("evaluating the model" if len(graphs) == 1 else f"evaluating {', '.join(graphs)}")
    facts = {
        variant: _facts(options.name, replace(candidate, graph=graph), None if manifest.personal else samples)
        for variant, graph in graphs.items()
    }
    for attempt in range(1, ATTEMPTS + 1):
        version = _newest_version(runs, options.name) + 1
        on_step(f"signing version {version}")
        try:
            numbered = {variant: replace(fact, version=version) for variant, fact in facts.items()}
            private = found.privacy is not None
            release = _upload(runs, checked, options, signer, version, graphs, numbered, plan, threshold, private)
            return CreatedRelease(release=release, dropped=dropped)
        except AlreadyExists:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _require_possible(manifest: Manifest, options: ReleaseOptions) -> None:
    """Raise InvalidInput for what needs a whole model, which of personal ones only devices have."""
    if not manifest.personal:
        return
    for name, value in (("variant", ", ".join(options.variants.names)), ("best", options.best)):
        if value:
            raise InvalidInput(
                field=name,
                value=value,
                rest="; of a model with personal tensors, which only devices can score, it must not be given",
            )
    if manifest.target.kind == "none":
        raise InvalidInput(
            f"task of run is {manifest.task.name!r}, whose threshold follows from scores, and its model has personal "
            "tensors; such a model cannot be released",
            field="task",
            value=manifest.task.name,
        )


def best_round(run: str, rounds: Sequence[Round], metric: Metric = ACCURACY) -> int:
    """Return the round with the best value of the metric of those whose model is kept; NotFound if it has none."""
    sign = 1 if metric.maximise else -1
    scored = {
        found.round: sign * found.metrics[metric.name]
        for found in rounds
        if found.model and metric.name in found.metrics
    }
    if not scored:
        raise NotFound(
            f"no global model of run {run!r} that is kept has a value of {metric.name}; score them with: "
            f"moonfed-export evaluate {run} --data TEST",
            field="run",
            value=run,
        )
    return max(scored, key=lambda number: (scored[number], -number))


def _newest_version(runs: CoordinatorClient, name: str) -> int:
    """Return the newest version of a release; 0 if there is none."""
    try:
        return max((release.version for release in runs.releases(name)), default=0)
    except NotFound:
        return 0


def _require_ended(run: Run) -> None:
    """Raise WrongState for an active run, as the coordinator would once everything has been computed."""
    if run.active:
        raise WrongState(
            f"run {run.run!r} is {run.status}; a release needs a run that has ended; "
            f"follow it with: moonfed-coordinator run watch {run.run}",
            field="run",
            value=run.run,
        )


def _require_threshold(signer: Signer) -> None:
    trust = signer.chain.verify()
    if len(signer.keys) < trust.threshold:
        raise UntrustedRelease(
            f"a release must be signed with {trust.threshold} of its trust file's keys, but there "
            f"{'is only' if len(signer.keys) == 1 else 'are only'} {len(signer.keys)}; name more with --sign",
            field="signing keys",
            value=len(signer.keys),
        )


def _variants(
    checked: CheckedModel, options: ReleaseOptions, samples: DataSet, on_step: Callable[[str], None]
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the graphs of the variants that passed the gate, and why others did not."""
    if not options.variants.names:
        return {FLOAT32: checked.graph}, {}
    manifest, sha256 = checked.manifest, samples.sha256()
    calibration: Calibration | None = None
    if options.calibration:
        calibration = read_calibration(options.calibration, manifest.input, samples.inputs, sha256, manifest.target)
    judged = replace(options.variants, calibration=calibration)
    made = make_variants(checked.graph, samples, sha256, judged, on_step=on_step)
    kept = {variant.name: variant.graph for variant in made if variant.verdict.kept}
    return kept, {variant.name: variant.verdict.reason for variant in made if not variant.verdict.kept}


def _facts(name: str, candidate: Candidate, samples: DataSet | None) -> ModelFacts:
    """Gather the facts about a variant, whose version is yet to be numbered; InvalidInput if it cannot be run."""
    facts = gather_facts(name, 0, candidate, None)
    require_runnable(candidate.graph, facts.interface, name)
    return facts if samples is None else replace(facts, results=evaluate(candidate.graph, facts.metadata, samples))


def _plan_files(runs: CoordinatorClient, checked: CheckedModel) -> dict[str, tuple[BlobRef, Path]]:
    """Fetch what a device needs to predict without ONNX Runtime: the files that were checked."""
    refs = {
        MANIFEST_FILE: checked.manifest_ref,
        **{name: checked.manifest.files[name] for name in plan_files(checked.manifest).values()},
        WEIGHTS_FILE: checked.weights,
        **parts_of(checked.manifest),
    }
    return {name: (ref, runs.fetch(ref)) for name, ref in refs.items()}


def _upload(
    runs: CoordinatorClient,
    checked: CheckedModel,
    options: ReleaseOptions,
    signer: Signer,
    version: int,
    graphs: Mapping[str, bytes],
    facts: Mapping[str, ModelFacts],
    plan: Mapping[str, tuple[BlobRef, Path]],
    threshold: float | None,
    private: bool,
) -> Release:
    contents = {variant: version_files(found, graphs[variant], signer) for variant, found in facts.items()}
    manifest = ReleaseManifest(
        name=options.name,
        version=version,
        created=int(options.clock()),
        run=checked.run,
        round=checked.round,
        input=checked.manifest.input,
        target=checked.manifest.target,
        metric=checked.manifest.metric,
        variants={
            variant: {name: ref_of_bytes(content) for name, content in files.items()}
            for variant, files in contents.items()
        },
        plan={name: ref for name, (ref, _) in plan.items()},
        pictures={
            variant: {name: ref_of_bytes(content) for name, content in found.pictures.items()}
            for variant, found in facts.items()
        },
        evaluation=_evaluation(facts[FLOAT32].results),
        threshold=threshold,
        personal=checked.manifest.personal,
        private=private,
    )
    signed, signature = manifest.to_bytes(), _signature(manifest, options, signer)
    with TemporaryDirectory(prefix="moonfed-") as directory:
        files = dict(plan.values())
        shown = (found.pictures for found in facts.values())
        every = (one for found in (*contents.values(), *shown) for one in found.values())
        for content in (signed, signature, *every):
            ref = ref_of_bytes(content)
            files[ref] = Path(directory) / ref.sha256
            files[ref].write_bytes(content)
        runs.connection.upload(files)
    return runs.create_release(ref_of_bytes(signed), ref_of_bytes(signature))


def version_files(facts: ModelFacts, graph: bytes, signer: Signer) -> dict[str, bytes]:
    """Return the files of a version's directory in a model repository, signed with the first key.

    Its card's pictures are not among them, so that devices, which fetch these, need not fetch those. The configuration
    has no version policy, which each repository has its own, and which signatures do not cover.
    """
    config = new_config(
        facts.name,
        facts.interface,
        labelled=facts.labelled,
        max_batch_size=MAX_BATCH_SIZE,
        instances=INSTANCES,
    )
    config.ClearField("version_policy")
    files = {
        MODEL_FILE: graph,
        CARD_FILE: model_card(facts).encode(),
        BILL_FILE: bill_of_materials(facts),
        CONFIG_FILE: to_text(config).encode(),
    }
    if facts.labelled:
        files[LABELS_FILE] = labels_text(facts.classes).encode()
    if facts.results:
        files[EVALUATION_FILE] = _evaluation_file(facts.results)
    files[SIGNATURE_FILE] = sign_release(files, subject_of(facts.name, facts.version), signer.keys[0])
    return files


def _evaluation_file(results: EvaluationResults) -> bytes:
    document = {
        "data_sha256": results.data_sha256,
        "samples": results.samples,
        "metric": results.score.metric.name,
        "metrics": dict(results.score.metrics),
        "classes": [
            {"name": each.name, "precision": each.precision, "recall": each.recall, "support": each.support}
            for each in results.classes
        ],
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _evaluation(results: EvaluationResults | None) -> Evaluation | None:
    if results is None:
        return None
    return Evaluation(score=results.score.value, samples=results.samples, data_sha256=results.data_sha256)


def _signature(manifest: ReleaseManifest, options: ReleaseOptions, signer: Signer) -> bytes:
    statement = Statement(
        name=manifest.name,
        version=manifest.version,
        manifest=ref_of_bytes(manifest.to_bytes()).sha256,
        expires=int(options.clock() + options.expires_days * DAY),
    )
    return sign(statement, signer.keys, signer.chain, RELEASE).to_bytes()
