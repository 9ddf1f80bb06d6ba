"""Descriptions of a bundle: a table for people, a document for scripts."""

from __future__ import annotations

import json
from typing import Any

from moonfed.blobs.tensors import ITEM_SIZE, TensorSpec, model_size
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import CONSTANT, GRAPH_PLAN_FILE, PROTOTYPES, InputSpec, Manifest
from moonfed.bundle.target import TargetSpec
from moonfed.formatting import count, iso_time
from moonfed.signing.bundle_signature import BundleSignature, moment
from moonfed.signing.envelope import ID_SHOWN
from moonfed.sizes import human
from moonfed.version import GRAPH_PLAN_INTERFACE

SHOWN_CLASSES = 10
SHOWN_COLUMNS = 10


def describe(bundle: Bundle) -> dict[str, Any]:
    """Return the manifest as a document, with the bundle's sha256 and the number of parameters."""
    document: dict[str, Any] = json.loads(bundle.manifest.to_bytes())
    facts = {"sha256": bundle.ref.sha256, "parameters": model_size(_of_kind(bundle.manifest, "parameter"))}
    return {**facts, "signature": _signature_document(bundle), "graphs": _graphs(bundle), **document}


def table(bundle: Bundle) -> str:
    """Format the bundle's contents as lines of a name and a value."""
    manifest = bundle.manifest
    parameters, statistics = _of_kind(manifest, "parameter"), _of_kind(manifest, "statistic")
    rows = [
        ("name", manifest.name),
        ("sha256", bundle.ref.sha256),
        ("signature", _signature(bundle)),
        ("model", f"{manifest.model}, {model_size(parameters):,} parameters in {len(parameters)} tensors"),
        ("statistics", f"{model_size(statistics):,} in {len(statistics)} tensors" if statistics else "none"),
        *_parts(manifest),
        *method_rows(manifest),
        *_exchanged(manifest),
        ("input", f"{manifest.input.kind}, {manifest.input.dtype} {_shape(manifest.input.shape)}"),
        *_table(manifest.input),
        ("task", task_text(manifest)),
        *_targets(manifest.target),
        ("plan", f"{manifest.plan.interface}, built with torch {manifest.plan.built_with_torch}, "
                 f"for torch {manifest.plan.minimum_torch} or later"),
        ("graph plan", _graph_plan(bundle)),
        ("samples", f"at least {manifest.plan.minimum_samples} on a device"),
        *((name, f"{ref.size:,} bytes, sha256 {ref.sha256[:12]}") for name, ref in sorted(manifest.files.items())),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _graphs(bundle: Bundle) -> dict[str, Any] | None:
    """Return the number of graphs, their operators, and the memory of a step, in bytes; None without graphs."""
    if GRAPH_PLAN_FILE not in bundle.files:
        return None
    from moonfed.export.graph.step_memory import step_bytes  # torch's tracer takes seconds to import

    graphs = json.loads(bundle.files[GRAPH_PLAN_FILE])["graphs"]
    operators = sorted({node["op"] for graph in graphs for node in graph["nodes"]})
    batch = bundle.manifest.training.batch_size
    return {"count": len(graphs), "operators": operators, "batch": batch, "step_bytes": step_bytes(bundle, batch)}


def _graph_plan(bundle: Bundle) -> str:
    graphs = _graphs(bundle)
    if graphs is None:
        reason = bundle.manifest.plan.untraceable
        return f"none: {reason}" if reason else "none"
    return (
        f"{GRAPH_PLAN_INTERFACE}, {count(graphs['count'], 'graph')} of {len(graphs['operators'])} operators, "
        f"for torch {bundle.manifest.plan.graph_minimum_torch} or later; a step of "
        f"{count(graphs['batch'], 'sample')} needs {human(graphs['step_bytes'])}"
    )


def _parts(manifest: Manifest) -> list[tuple[str, str]]:
    """Return the parts of a model that has more than a shared one."""
    kinds = (
        ("shared", manifest.tensors, "in each round"),
        ("frozen", manifest.frozen, "fetched once"),
        ("personal", manifest.personal, "never leave the device"),
    )
    if not manifest.frozen and not manifest.personal:
        return []
    return [
        ("parts" if kind == "shared" else "", f"{kind} {count(len(specs), 'tensor')}, {model_size(specs):,} numbers, "
         f"{human(ITEM_SIZE * model_size(specs))}, {what}")
        for kind, specs, what in kinds
        if specs
    ]  # fmt: skip


def _table(sample: InputSpec) -> list[tuple[str, str]]:
    """Return the columns of tables and their target."""
    if sample.table is None:
        return []
    names = [
        f"{column.name} ({len(column.categories)} categories)" if column.categories else column.name
        for column in sample.table.columns[:SHOWN_COLUMNS]
    ]
    more = ", …" if len(sample.table.columns) > SHOWN_COLUMNS else ""
    return [
        ("columns", f"{len(sample.table.columns)}: {', '.join(names)}{more}"),
        *(("target column", name) for name in sample.table.targets),
        *([("windows within", sample.table.group)] if sample.table.group else []),
    ]


def task_text(manifest: Manifest) -> str:
    """Return the task with its settings and metric, such as "regression, loss = huber; rmse (lower is better)"."""
    text = ", ".join(
        [manifest.task.name, *(f"{key} = {value}" for key, value in sorted(manifest.task.settings.items()))]
    )
    return f"{text}; {manifest.metric.name} ({'higher' if manifest.metric.maximise else 'lower'} is better)"


def scale_text(target: TargetSpec) -> str:
    """Return the scales of values, such as "price (EUR): mean 312000, standard deviation 81000"."""
    count_ = len(target.names)
    means, deviations = target.mean or (0.0,) * count_, target.deviation or (1.0,) * count_
    rows = zip(target.names_with_units, means, deviations, strict=True)
    return "; ".join(f"{name}: mean {mean:g}, standard deviation {deviation:g}" for name, mean, deviation in rows)


def _targets(target: TargetSpec) -> list[tuple[str, str]]:
    """Return the targets as names and values."""
    if target.is_input:
        return [("target", target.describe())]
    if target.kind != "values":
        return [({"labels": "labels"}.get(target.kind, "classes"), _classes(target.names))]
    steps = f", {count(target.shape[0], 'step')} each" if len(target.shape) > 1 else ""
    return [("values", f"{len(target.names)}: {scale_text(target)}{steps}")]


def method_rows(manifest: Manifest) -> list[tuple[str, str]]:
    """Return where training starts, the method with its settings, local training and the server rule."""
    start = manifest.pretrained
    return [
        *([("starts from", start.describe(len(manifest.whole)))] if start else []),
        ("method", _method(manifest)),
        ("optimiser", manifest.plan.optimiser),
        *(("", _hyperparameter(manifest, name)) for name in sorted(manifest.training.hyperparameters)),
        *([("step schedule", manifest.plan.step_schedule)] if manifest.plan.step_schedule != CONSTANT else []),
        ("training", f"{count(manifest.training.epochs, 'epoch')} a round, batches of {manifest.training.batch_size}"),
        ("augmentation", _augmentation(manifest)),
        ("server rule", _server_rule(manifest)),
    ]


def _signature_document(bundle: Bundle) -> dict[str, Any] | None:
    """Return the signature's unverified claims; None without a signature."""
    if not bundle.signature:
        return None
    signature = BundleSignature.from_bytes(bundle.signature)
    statement = signature.statement
    keys = [entry.key for entry in signature.envelope.signatures]
    return {"version": statement.version, "expires": iso_time(statement.expires), "keys": keys}


def _signature(bundle: Bundle) -> str:
    if not bundle.signature:
        return "none"
    signature = BundleSignature.from_bytes(bundle.signature)
    keys = ", ".join(entry.key[:ID_SHOWN] for entry in signature.envelope.signatures)
    return f"version {signature.statement.version} by {keys}, expires {moment(signature.statement.expires)}"


def _method(manifest: Manifest) -> str:
    if manifest.previous_models:
        return f"{manifest.method} with up to {_counted(manifest.previous_models, 'previous model')}"
    return manifest.method


def _hyperparameter(manifest: Manifest, name: str) -> str:
    if name not in manifest.schedules:
        return f"{name} = {manifest.training.hyperparameters[name]:g}"
    (first, value), *others = manifest.schedules[name]
    return f"{name} = {value:g} until round {first}" + "".join(
        f", linearly to {then:g} in round {at}" for at, then in others
    )


def _augmentation(manifest: Manifest) -> str:
    views = manifest.training.views
    if manifest.augmentation == "none":
        return "none"
    return f"{manifest.augmentation}, {f'{views} views of each sample' if views else 'a new one in every epoch'}"


def _server_rule(manifest: Manifest) -> str:
    rule = manifest.server_rule
    return ", ".join([rule.name, *(f"{key} = {str(value).lower()}" for key, value in sorted(rule.settings.items()))])


def _exchanged(manifest: Manifest) -> list[tuple[str, str]]:
    """Return the files other than the model that are downloaded, uploaded and kept on the device, by role."""
    devices = (
        f", each of {_counted(manifest.prototype_devices, 'device') if manifest.prototype_devices else 'all devices'}"
    )
    rows = [("down", manifest.downlink), ("up", manifest.uplink), ("kept on device", manifest.device_state)]
    return [
        (direction, f"{role}, {model_size(specs):,} numbers{devices if role == PROTOTYPES else ''}")
        for direction, roles in rows
        for role, specs in sorted(roles.items())
    ]


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _classes(classes: tuple[str, ...]) -> str:
    shown = ", ".join(classes[:SHOWN_CLASSES])
    return f"{len(classes)}: {shown}{', …' if len(classes) > SHOWN_CLASSES else ''}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape)


def _of_kind(manifest: Manifest, kind: str) -> list[TensorSpec]:
    return [tensor for tensor in manifest.tensors if tensor.kind == kind]
