"""The model card in Markdown: facts to know before using a model.

After Mitchell et al., Model Cards for Model Reporting (FAT* 2019): details, training, measured quality, limits, use.
The same facts give the same bytes: it holds no time and no path. Pictures are files of their own, next to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import Kind
from moonfed.control.held_out_score import ClassScore, HeldOutScore
from moonfed.control.privacy import PrivacySpent
from moonfed.export.inspection import method_rows
from moonfed.formatting import count, measured
from moonfed.release.model_facts import (
    CurvePoint,
    DeviceResults,
    EvaluationResults,
    ModelFacts,
    TrainingHistory,
    target_spec,
)
from moonfed.release.quality import f1, iou
from moonfed.release.triton_config import ANY, GraphTensor

CARD_FILE = "MODEL_CARD.md"
SHOWN_ROUNDS = 25  # evenly spread over a longer curve
SHOWN_CLASSES = 25  # of a confusion matrix
CONFUSED = 10  # pairs of classes, of a larger one
WIDTH = 20  # characters of a full bar
UNKNOWN = "-"

# metadata keys that would be ambiguous in a card
_LABELS = {
    "manifest_sha256": "bundle sha256",
    "model": "network",
    "model_sha256": "weights sha256",
    "name": "bundle",
    "parent_sha256": "sha256 of the file it was made from",
    "release": "moonfed release",
}
# numpy's names of the input and output types of moonfed's models
_NUMPY = {"TYPE_UINT8": "uint8", "TYPE_FP32": "float32", "TYPE_INT64": "int64"}
_RETURNED = {"none": "a score, which is higher for unusual samples", "next": "the probabilities of each next token"}
_UNCALIBRATED = "- Its probabilities are not calibrated: they rank {}, but do not tell how often it is right."
_LIMITS: dict[Kind, tuple[str, ...]] = {
    "class": (
        "- It knows only its classes: it assigns one of them to any input.",
        _UNCALIBRATED.format("classes"),
    ),
    "labels": (
        "- It knows only its labels: none applies to what is unlike all of them, or one does wrongly.",
        _UNCALIBRATED.format("labels"),
    ),
    "mask": (
        "- It knows only its classes: it assigns one of them to any pixel.",
        _UNCALIBRATED.format("classes"),
    ),
    "values": ("- It returns a value for any input, without telling how certain it is.",),
    "none": ("- A score says that a sample is unlike those it was trained on, not what is wrong with it.",),
    "next": (
        "- It continues texts by what is frequent in its training data, not by what is true.",
        _UNCALIBRATED.format("tokens"),
    ),
}


def model_card(facts: ModelFacts) -> str:
    """Write the card."""
    sections = [
        f"# {facts.name}, version {facts.version}",
        _summary(facts),
        "## Model",
        _model(facts),
        *(_training(facts.history) if facts.history else ()),
        *(_privacy(facts.history.privacy) if facts.history and facts.history.privacy else ()),
        *(_quality(facts.results) if facts.results else ()),
        *(_evaluations(facts.history, facts.results) if facts.history else ()),
        "## Limits",
        _limits(facts),
        "## Use",
        _use(facts),
    ]
    return "\n\n".join(sections) + "\n"


def _summary(facts: ModelFacts) -> str:
    found = target_spec(facts.metadata, "the model")
    if "target" not in facts.metadata:
        returned = "a result"
    elif found.kind in _RETURNED:
        returned = _RETURNED[found.kind]
    else:
        returned = f"one of {len(facts.classes)} classes" if found.kind == "class" else found.describe()
    origin = ""
    if "run" in facts.metadata:
        origin = (
            f" It is the global model of round {facts.metadata['round']} of the federated run "
            f"`{facts.metadata['run']}`, trained by {facts.metadata['method']} on devices whose data never left them."
        )
    return f"Takes a raw sample and returns {returned}; preprocessing is included.{origin}"


def _model(facts: ModelFacts) -> str:
    target = target_spec(facts.metadata, "the model")
    names = [_cell(name) for name in target.names_with_units]
    rows = [
        ("file", f"`model.onnx`, {facts.size:,} bytes"),
        ("sha256", f"`{facts.sha256}`"),
        *((f"input `{tensor.name}`", _tensor(tensor)) for tensor in facts.interface.inputs),
        *((f"output `{tensor.name}`", _tensor(tensor)) for tensor in facts.interface.outputs),
        *(((target.named, ", ".join(names)),) if names else ()),
        *sorted((_LABELS.get(key, key.replace("_", " ")), f"`{_cell(value)}`") for key, value in facts.metadata.items()
                if key not in ("target", "input")),
    ]  # fmt: skip
    return _table(("", ""), rows)


def _training(history: TrainingHistory) -> list[str]:
    rounds = [point for point in history.curve if point.round]
    devices = {device for point in rounds for device in point.devices}
    shown = history.privacy is None  # no noise covers the number of devices that took part
    in_all = f"{len(devices)} in all, {_mean([len(point.devices) for point in rounds])} in a round"
    rows = [
        *((name, _cell(value)) for name, value in method_rows(history.manifest)),
        ("rounds", f"{len(rounds)}"),
        *((("devices", in_all),) if shown else ()),
    ]
    metric = history.manifest.metric
    curve = [
        (
            str(point.round),
            *((str(len(point.devices)),) if shown else ()),
            *(_number(point.score), _number(point.loss)),
            *((_bar(point.score),) if metric.share else ()),
        )
        for point in _selected(history.curve)
    ]
    unit = f" ({_cell(metric.unit)})" if metric.unit else ""
    counts = ("devices",) if shown else ()
    head = ("round", *counts, f"{metric.name}{unit}", "loss", *(("",) if metric.share else ()))
    return [
        "## Training",
        _table(("", ""), rows),
        f"{metric.label.capitalize()} and loss by round, on the evaluator's held-out data:",
        _table(head, curve),
        f"The graph's {history.manifest.target.output} differ from the training plan's by "
        f"{history.max_abs_diff:.2g} at most.",
    ]


def _privacy(spent: PrivacySpent) -> list[str]:
    rows = [
        ("epsilon", f"{spent.epsilon:.3g}, of a budget of {spent.budget:g}"),
        ("delta", f"{spent.delta:g}"),
        ("unit", "a device, added or removed with all its samples"),
        ("sampling", f"Poisson, {spent.sampling_rate * 100:.3g} % of the devices in each round"),
        ("noise multiplier", f"{spent.noise_multiplier:.4g}"),
        ("clip of the last round", f"{spent.clip_norm:.4g}, L2"),
        ("rounds charged", f"{spent.releases:,}"),
        ("released without noise", _cell(", ".join(spent.unprotected)) or "nothing"),
    ]
    return [
        "## Privacy",
        "All global models of the run together have differential privacy, towards those who see the models. The "
        "operator of the coordinator saw every update. Other runs with the same devices add to it.",
        _table(("", ""), rows),
    ]


def _quality(results: EvaluationResults) -> list[str]:
    return [
        "## Quality",
        f"On {results.samples:,} samples (sha256 `{results.data_sha256}`): "
        + ", ".join(
            f"{name} {_with_unit(results.score.metric, name, value)}" for name, value in results.score.metrics.items()
        )
        + ".",
        *(f"![{picture.caption}]({picture.name})" for picture in results.pictures),
        *([_by_class(results.classes, results.kind)] if results.classes else []),
        *([results.table.caption, _table(results.table.head, _escaped(results.table.rows))] if results.table else []),
    ]


def _by_class(classes: Iterable[ClassScore], kind: Kind) -> str:
    """Write precision and recall, and what the metric is a mean of: the IoU of classes of pixels, the F1 of labels."""
    mean = {"mask": ("IoU", iou), "labels": ("F1", f1)}.get(kind)
    rows = [
        (
            *(_cell(entry.name), _number(entry.precision), _number(entry.recall)),
            *((_number(mean[1](entry)),) if mean else ()),
            str(entry.support),
        )
        for entry in classes
    ]
    head = ("label" if kind == "labels" else "class", "precision", "recall", *((mean[0],) if mean else ()))
    return _table((*head, "pixels" if kind == "mask" else "samples"), rows)


def _evaluations(history: TrainingHistory, results: EvaluationResults | None) -> list[str]:
    """Write the recorded results on each test set, and those on devices; a table of `results` is not repeated."""
    shown = {results.data_sha256: _by_class(results.classes, results.kind)} if results else {}
    sections = [part for score in history.scores for part in _test_set(score) if part != shown.get(score.sha256)]
    if history.on_devices:
        sections += ["## Quality on devices", _on_devices(history.on_devices, history.manifest.metric)]
    return sections


def _test_set(score: HeldOutScore) -> list[str]:
    kind: Kind = "mask" if score.counts_of == "pixels" else "class"
    return [
        f"## Quality on test set {score.test_set}",
        f"On {score.samples:,} samples (sha256 `{score.sha256}`): {_measured(score)}.",
        *([_by_class(score.by_class(), kind), *_confusion(score)] if score.classes else []),
    ]


def _measured(score: HeldOutScore) -> str:
    found = [
        f"{name} {_with_unit(score.metric, name, value)}"
        for name, value in score.described().items()
        if name in score.metrics
    ]
    if score.calibration_error is not None:
        bins = f"in {score.calibration_bins} bins of equal width"
        found.append(f"expected calibration error {measured(score.calibration_error)} {bins}")
    return ", ".join(found)


def _confusion(score: HeldOutScore) -> list[str]:
    """Write the matrix, or what is confused most often if there are too many classes for a table."""
    names = [_cell(name) for name in score.classes]
    if not score.confusion:
        return []
    if len(names) <= SHOWN_CLASSES:
        matrix = [(name, *map(str, row)) for name, row in zip(names, score.rows(), strict=True)]
        return [
            f"{score.counts_of.capitalize()} by class (rows) and predicted class (columns):",
            _table(("", *names), matrix),
        ]
    wrong = [
        (number, names[i], names[j])
        for i, row in enumerate(score.rows())
        for j, number in enumerate(row)
        if number and i != j
    ]
    most = sorted(wrong, key=lambda entry: -entry[0])[:CONFUSED]
    confused = [(name, predicted, str(number)) for number, name, predicted in most]
    return ["Classes that are confused most often:", _table(("class", "predicted class", score.counts_of), confused)]


def _on_devices(results: DeviceResults, metric: Metric) -> str:
    others = f" {count(results.others, 'other device')} declined or did not answer." * bool(results.others)
    return (
        f"Measured by {count(results.devices, 'device')} on data that they had held out: "
        f"{metric.label} {measured(results.median, metric.unit)} in the median, "
        f"{measured(results.worst_decile, metric.unit)} in the worst decile. "
        "It is worse than the device's own latest model on "
        f"{results.worse:,} of {count(results.compared, 'device')}.{others}"
    )


def _limits(facts: ModelFacts) -> str:
    recorded = facts.history and (facts.history.scores or facts.history.on_devices)
    known = (
        facts.results or recorded or (facts.history and any(point.score is not None for point in facts.history.curve))
    )
    lines = [
        *_LIMITS[target_spec(facts.metadata, "the model").kind if "target" in facts.metadata else "class"],
        "- The devices' data were never inspected: the model may perform poorly on anything rare among them.",
    ]
    if facts.history and facts.history.manifest.personal:
        own = facts.history.manifest.personal
        lines.append(
            f"- {count(len(own), 'tensor')} of it, such as `{own[0].name}`, are personal: each device predicts with "
            "its own values, and this file has those that training began with. Only devices can run it."
        )
    if known:
        lines.append("- The figures above hold only for data like those they were measured on.")
    else:
        lines.append("- Its quality has not been measured.")
    return "\n".join(lines)


def _use(facts: ModelFacts) -> str:
    first_input, first_output = facts.interface.inputs[0], facts.interface.outputs[0]
    dtype = _NUMPY.get(first_input.type_name, "float32")
    lines = [
        "    import numpy, onnxruntime",
        "",
        '    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])',
        f"    batch = numpy.zeros({_example_shape(first_input)}, {dtype!r})  # your samples",
        f"    ({first_output.name},) = session.run([{first_output.name!r}], {{{first_input.name!r}: batch}})",
    ]
    served = "In a model repository with its `config.pbtxt`, `moonfed-export serve` and Triton serve it as"
    return "With ONNX Runtime:\n\n" + "\n".join(lines) + f"\n\n{served} `{facts.name}`."


def _tensor(tensor: GraphTensor) -> str:
    shape = ", ".join("any" if side == ANY else str(side) for side in tensor.shape)
    return f"{tensor.type_name.removeprefix('TYPE_')} [{shape}]"


def _example_shape(tensor: GraphTensor) -> tuple[int, ...]:
    return tuple(1 if side == ANY else side for side in tensor.shape)


def _selected(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Select the points to show, including the first and the last."""
    if len(curve) <= SHOWN_ROUNDS:
        return list(curve)
    return [curve[round(i * (len(curve) - 1) / (SHOWN_ROUNDS - 1))] for i in range(SHOWN_ROUNDS)]


def _bar(share: float | None) -> str:
    return "" if share is None else "█" * round(share * WIDTH)


def _with_unit(metric: Metric, name: str, value: float) -> str:
    return measured(value, metric.unit_of(name))


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else measured(value)


def _mean(numbers: Sequence[int]) -> str:
    return f"{sum(numbers) / len(numbers):g}" if numbers else "0"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(header)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(rows: Iterable[Iterable[str]]) -> list[list[str]]:
    return [[_cell(cell) for cell in row] for row in rows]


def _cell(text: str) -> str:
    """Escape a user's text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")
