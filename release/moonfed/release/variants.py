"""The variants of a checked model: converted, measured, and judged by the gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import CLASSIFICATION
from moonfed.data.data_set import DataSet
from moonfed.errors import InvalidInput
from moonfed.export.binding import read_metadata, with_metadata
from moonfed.export.scoring import open_session
from moonfed.release.benchmark import largest_difference, measure
from moonfed.release.calibration import Calibration
from moonfed.release.convert import describe_hardware, optimise, to_int8
from moonfed.release.float16 import to_float16
from moonfed.release.variant_gate import (
    KEEPS,
    MAX_DROP,
    Keep,
    Measurements,
    Verdict,
    judge,
    judge_optimised,
)

FLOAT32 = "float32"
FLOAT16 = "float16"
INT8 = "int8"
VARIANTS = (FLOAT32, FLOAT16, INT8)
OPTIMISED = "-optimised"  # suffix of an optimised copy's name
_NOT_INHERITED = ("parity_bound", "parity_data_sha256")  # hold for the float32 file only


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOptions:
    """The variants to make besides float32, and how to judge them."""

    names: tuple[str, ...] = ()  # of VARIANTS
    optimised: bool = False  # also make ONNX Runtime's optimised copies
    max_drop: float = MAX_DROP  # see `Score.drop_from`
    keep: Keep = KEEPS[0]
    calibration: Calibration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A variant, measured and judged."""

    name: str
    parent: str  # the variant it was made from; empty for float32
    graph: bytes  # the file, including its metadata
    measurements: Measurements
    drop: float  # from float32, see `Score.drop_from`
    difference: float  # the largest between an output and float32's
    verdict: Verdict


def _ignore(_: str) -> None:
    pass


def read_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the named variants in canonical order, expanding `all`; raise InvalidInput for an unknown name."""
    for name in names:
        if name not in (*VARIANTS, "all"):
            raise InvalidInput(
                field="variant", value=name, allowed=f"one of {', '.join(VARIANTS)} or all; repeat it for more"
            )
    return tuple(name for name in VARIANTS if name in names or "all" in names)


def make_variants(
    graph: bytes,
    data: DataSet,
    data_sha256: str,
    options: VariantOptions,
    *,
    on_step: Callable[[str], None] = _ignore,
) -> list[Variant]:
    """Make float32 and every requested variant, kept or not.

    `graph`: a checked model. `data`: test data with targets to judge all of them on. `on_step` gets the name of each
    step, which may take minutes. Raises InvalidInput for no samples, or for int8 without calibration data.
    """
    if len(data) == 0:
        raise InvalidInput("data hold no samples; variants are judged on at least one")
    gate = {"gate_max_drop": f"{options.max_drop:g}", "gate_data_sha256": data_sha256}
    graphs, parents = {FLOAT32: graph}, {FLOAT32: ""}
    for name in options.names:
        if name != FLOAT32:
            on_step(f"making {name}")
            graphs[name], parents[name] = _convert(name, graph, options, gate), FLOAT32
    if options.optimised:
        on_step("making the optimised copies")
        for name in list(graphs):
            notes = {"variant": name + OPTIMISED, "optimised_for": describe_hardware(), **gate}
            graphs[name + OPTIMISED] = _with_origin(optimise(graphs[name]), graphs[name], notes)
            parents[name + OPTIMISED] = name
    on_step(f"timing {', '.join(graphs)}, and scoring them on {len(data):,} samples")
    return _measure_and_judge(graphs, parents, data, options)


def _convert(name: str, graph: bytes, options: VariantOptions, gate: Mapping[str, str]) -> bytes:
    if name == FLOAT16:
        return _with_origin(_made(name, lambda: to_float16(graph)), graph, {"variant": name, **gate})
    calibration = options.calibration
    if calibration is None:
        raise InvalidInput("variant int8 needs data to calibrate on; name them with --calibration")
    notes = {"variant": name, "calibration_sha256": calibration.sha256, **gate}
    notes["calibration_samples"] = str(len(calibration.inputs))
    return _with_origin(_made(name, lambda: to_int8(graph, calibration.inputs)), graph, notes)


def _made(name: str, convert: Callable[[], bytes]) -> bytes:
    """Return a converted graph that ONNX Runtime loads; raise InvalidInput if it does not support the model's."""
    try:
        converted = convert()
        open_session(converted)
        return converted
    except Exception as error:  # its errors, and its converters', share no public base class
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(
            f"variant is {name!r}, which ONNX Runtime cannot make of this model: {reason}", field="variant", value=name
        ) from error


def _with_origin(converted: bytes, parent: bytes, notes: Mapping[str, str]) -> bytes:
    """Add metadata to a converted graph: the inherited entries, its parent and its own notes."""
    inherited = {key: value for key, value in read_metadata(parent).items() if key not in _NOT_INHERITED}
    return with_metadata(converted, {**inherited, "parent_sha256": ref_of_bytes(parent).sha256, **notes})


def _measure_and_judge(
    graphs: Mapping[str, bytes], parents: Mapping[str, str], data: DataSet, options: VariantOptions
) -> list[Variant]:
    float32 = graphs[FLOAT32]
    measured = measure(graphs, data, read_metadata(float32).get("task", CLASSIFICATION.name))
    verdicts = {FLOAT32: Verdict(kept=True, reason="the reference for the others")}
    for name, parent in parents.items():
        if not parent:
            continue
        if not verdicts[parent].kept:
            verdicts[name] = Verdict(kept=False, reason=f"{parent} was dropped")
            continue
        compared = (measured[name], measured[parent], measured[FLOAT32])
        if name.endswith(OPTIMISED):
            verdicts[name] = judge_optimised(*compared, parent_name=parent, max_drop=options.max_drop)
        else:
            verdicts[name] = judge(*compared, parent_name=parent, max_drop=options.max_drop, keep=options.keep)
    return [
        Variant(
            name=name,
            parent=parents[name],
            graph=graph,
            measurements=measured[name],
            drop=measured[name].score.drop_from(measured[FLOAT32].score),
            difference=largest_difference(graph, float32, data.inputs),
            verdict=verdicts[name],
        )
        for name, graph in graphs.items()
    ]
