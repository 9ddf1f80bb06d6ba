"""From a checked model to its variants: makes those that are wanted, measures them, and lets the gate judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moonfed.blobs import ref_of_bytes
from moonfed.errors import InvalidInput
from moonfed.export.binding import read_metadata, with_metadata
from moonfed.release.benchmark import largest_difference, measure
from moonfed.release.calibration import Calibration
from moonfed.release.convert import describe_hardware, optimise, to_int8
from moonfed.release.float16 import to_float16
from moonfed.release.gate import MAX_DROP, Measurements, Verdict, accuracy_drop, judge
from moonfed.samples import RawSamples

FLOAT32, FLOAT16, INT8 = "float32", "float16", "int8"
VARIANTS = (FLOAT32, FLOAT16, INT8)
OPTIMISED = "-optimised"  # ends the name of an optimised copy
_OF_THE_FILE = ("parity_bound", "parity_data_sha256")  # what is true of the float32 file alone


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOptions:
    """Which variants to make beside float32, and by what they are judged."""

    names: tuple[str, ...] = ()  # of VARIANTS
    optimised: bool = False  # and ONNX Runtime's optimised copies of those that are kept
    max_drop: float = MAX_DROP  # points of top-1
    calibration: Calibration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One variant, measured and judged."""

    name: str
    parent: str  # the variant it was made from; empty for float32
    graph: bytes  # the file, its metadata included
    figures: Measurements
    drop: float  # points of top-1 below float32; negative if above
    difference: float  # the largest, between a probability and float32's
    verdict: Verdict


def _quietly(_: str) -> None:
    pass


def read_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of variants, `all` among them perhaps, in their own order; InvalidInput for an unknown one."""
    for name in names:
        if name not in (*VARIANTS, "all"):
            raise InvalidInput(
                f"variant is {name!r}; it must be one of {', '.join(VARIANTS)} or all; repeat it for more"
            )
    return tuple(name for name in VARIANTS if name in names or "all" in names)


def make_variants(
    graph: bytes, data: RawSamples, data_sha256: str, wishes: VariantOptions, *, begun: Callable[[str], None] = _quietly
) -> list[Variant]:
    """Float32 first, then every variant that was wished for, kept or not.

    `graph`: a checked model. `data`: labelled test data, by which all are judged. `begun` is told of each step, since
    with a large model or many samples one takes minutes. Raises InvalidInput for no samples, or for int8 without any
    to calibrate on.
    """
    if len(data) == 0:
        raise InvalidInput("data hold no samples; variants are judged on at least one")
    gate = {"gate_max_drop": f"{wishes.max_drop:g}", "gate_data_sha256": data_sha256}
    graphs, parents = {FLOAT32: graph}, {FLOAT32: ""}
    for name in wishes.names:
        if name != FLOAT32:
            begun(f"making {name}")
            graphs[name], parents[name] = _converted(name, graph, wishes, gate), FLOAT32
    if wishes.optimised:
        begun("making the optimised copies")
        for name in list(graphs):
            notes = {"variant": name + OPTIMISED, "optimised_for": describe_hardware(), **gate}
            graphs[name + OPTIMISED] = _said(optimise(graphs[name]), graphs[name], notes)
            parents[name + OPTIMISED] = name
    begun(f"timing {', '.join(graphs)}, and scoring them on {len(data):,} samples")
    return _judged(graphs, parents, data, wishes.max_drop)


def _converted(name: str, graph: bytes, wishes: VariantOptions, gate: Mapping[str, str]) -> bytes:
    if name == FLOAT16:
        return _said(to_float16(graph), graph, {"variant": name, **gate})
    calibration = wishes.calibration
    if calibration is None:
        raise InvalidInput("variant int8 needs data to calibrate on; name an .npz file with --calibration")
    notes = {"variant": name, "calibration_sha256": calibration.sha256, **gate}
    notes["calibration_samples"] = str(len(calibration.inputs))
    return _said(to_int8(graph, calibration.inputs), graph, notes)


def _said(converted: bytes, parent: bytes, notes: Mapping[str, str]) -> bytes:
    """A converted graph that says what its parent says, as far as it is true of it, and what it is itself."""
    inherited = {key: value for key, value in read_metadata(parent).items() if key not in _OF_THE_FILE}
    return with_metadata(converted, {**inherited, "parent_sha256": ref_of_bytes(parent).sha256, **notes})


def _judged(
    graphs: Mapping[str, bytes], parents: Mapping[str, str], data: RawSamples, max_drop: float
) -> list[Variant]:
    figures, float32 = measure(graphs, data), graphs[FLOAT32]
    verdicts = {FLOAT32: Verdict(kept=True, reason="what the others are measured by")}
    for name, parent in parents.items():
        if not parent:
            continue
        if not verdicts[parent].kept:
            verdicts[name] = Verdict(kept=False, reason=f"{parent} was dropped")
            continue
        verdicts[name] = judge(
            figures[name],
            figures[parent],
            figures[FLOAT32],
            parent_name=parent,
            max_drop=max_drop,
            by_loading=name.endswith(OPTIMISED),
        )
    return [
        Variant(
            name=name,
            parent=parents[name],
            graph=graph,
            figures=figures[name],
            drop=accuracy_drop(figures[name].score, figures[FLOAT32].score),
            difference=largest_difference(graph, float32, data.inputs),
            verdict=verdicts[name],
        )
        for name, graph in graphs.items()
    ]
