"""Preparation of a simulation's output directory: its recipe, the parties' data and the bundle, each written once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from moonfed.bundle.files import Bundle, read_bundle, write_bundle
from moonfed.bundle.manifest import Manifest
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet
from moonfed.data.open_source import open_source
from moonfed.errors import Corrupt, InvalidInput
from moonfed.experiments.datasets import LOADERS, SplitDataSet, load_dataset, preprocessing
from moonfed.experiments.fleet.data import describe_split, digest_of, write_parts
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.group import group_by
from moonfed.experiments.own_data import OwnData, split_samples
from moonfed.experiments.partition import MINIMUM_SAMPLES, Indices, split
from moonfed.experiments.simulation import OWN_DATA, POOLED, TABLES, Simulation
from moonfed.experiments.subsets import subset
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe, scaled_target
from moonfed.export.bundle_signing import SigningOptions, sign_new
from moonfed.files import write_durably
from moonfed.sandbox.plan_process import require_safe_plan
from moonfed.signing.key_files import open_signer


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The inputs of a simulation besides its recipe."""

    data: Path | None = None  # the user's samples, or the folder with the data set's files
    bundle: Bundle | None = None  # that the simulation names


def prepare(simulation: Simulation, layout: Layout, source: Source, say: Callable[[str], None]) -> None:
    """Create the missing files. An impossible recipe is rejected before anything is written.

    Raises InvalidInput if the directory holds something else, naming the key in which its recipe differs.
    """
    require_ours(simulation, layout)
    if not (layout.data.is_dir() and layout.bundle.is_dir()):
        activity = "" if simulation.bundle else " and compiling the plan"
        say(f"Preparing {simulation.dataset or source.data} for {simulation.trained_parties} parties{activity}")
        # A checkpoint brings its own bundle: another release of torch would compile another.
        given = read_bundle(layout.bundle) if layout.bundle.is_dir() else source.bundle
        if given:
            _require_global_model(given.manifest)
            require_safe_plan(given.plans)
        loaded = _load(simulation, source.data, given)
        parts = _split(simulation, loaded)
        bundle = None if given else build_bundle(bundle_recipe(simulation, loaded))
        if bundle:
            _require_global_model(bundle.manifest)
        layout.root.mkdir(parents=True, exist_ok=True)
        write_durably(layout.recipe, json.dumps(simulation.to_document(), indent=1).encode() + b"\n")
        write_durably(layout.split, json.dumps(asdict(describe_split(parts))).encode() + b"\n")
        write_parts(loaded, parts, layout.data)
        _require_same_samples(layout)
        if bundle:
            write_bundle(layout.bundle, sign_new(bundle, open_signer([], say), SigningOptions()).bundle)
        elif not layout.bundle.is_dir():
            assert given is not None  # noqa: S101 - otherwise it was built
            write_bundle(layout.bundle, given)
    for leftover in layout.root.glob("parties/*/runs/*/.*"):  # of a worker that was killed
        shutil.rmtree(leftover, ignore_errors=True)


def _require_global_model(manifest: Manifest) -> None:
    """Raise InvalidInput for personal tensors: a simulation scores global models on one test set."""
    if manifest.personal:
        raise InvalidInput(
            f"bundle {manifest.name!r} has personal tensors, such as {manifest.personal[0].name}, and a simulation "
            "scores global models; train it on devices, and score it with `moonfed-coordinator run evaluate`",
            field="personal",
            value=manifest.name,
        )


def _split(simulation: Simulation, data: SplitDataSet) -> list[Indices]:
    """Return the training samples of each party."""
    if not simulation.by or simulation.method == POOLED:
        return split(data.train, simulation.partition_settings)
    if data.train.file is None or data.train.rows is None:
        raise InvalidInput(
            field="by", value=simulation.by, rest=", which applies to tables and .npz files only; leave it out"
        )
    parts = group_by(data.train.file, simulation.by, data.train.rows)
    if len(parts) != simulation.parties:
        raise InvalidInput(
            field="parties",
            value=simulation.parties,
            rest=f", and column {simulation.by!r} has {len(parts)} values; they must agree",
        )
    return parts


def _load(simulation: Simulation, data: Path | None, bundle: Bundle | None) -> SplitDataSet:
    """Load the data set, or the recipe's part of it; InvalidInput if that is too small."""
    loaded = subset(
        load_dataset(simulation.dataset, data) if simulation.dataset else _load_own(simulation, data, bundle),
        train_samples=simulation.train_samples,
        test_samples=simulation.test_samples,
        seed=simulation.run.seed,
    )
    most = len(loaded.train) // MINIMUM_SAMPLES
    if simulation.parties > most and not simulation.by:
        raise InvalidInput(
            field="parties",
            value=simulation.parties,
            rest=f"; {len(loaded.train)} training samples are enough for at most {most}",
        )
    return loaded


def _load_own(simulation: Simulation, data: Path | None, bundle: Bundle | None) -> SplitDataSet:
    if data is None and simulation.bundle:
        raise InvalidInput("data is missing; it must name samples of your own, in the bundle's form")
    if data is None:
        raise InvalidInput(
            f"dataset is not given; it must be one of {', '.join(LOADERS)}, or --data must name samples of your own"
        )
    if simulation.bundle and bundle:
        manifest = bundle.manifest
        samples = open_source(str(data), simulation.target).read(manifest.input, manifest.target)
        samples.require_samples()
        return split_samples(simulation.name, samples, manifest.input)
    described = {key: getattr(simulation, key) for key in OWN_DATA}
    return OwnData(text=str(data), task=simulation.task_name, **described).read_split(simulation.name)


def _require_same_samples(layout: Layout) -> None:
    """Raise InvalidInput if the directory resumes a checkpoint that was made with other samples."""
    if not layout.checkpoint.is_file():
        return
    if json.loads(layout.checkpoint.read_bytes())["data_sha256"] != digest_of(layout.data):
        shutil.rmtree(layout.data)
        raise InvalidInput("data holds other samples than the checkpoint's", field="data")


def require_ours(simulation: Simulation, layout: Layout) -> None:
    """Raise InvalidInput unless the directory is new, empty, or this simulation's."""
    if not layout.recipe.is_file():
        if layout.root.exists() and not (layout.root.is_dir() and not any(layout.root.iterdir())):
            raise InvalidInput(
                field="output",
                value=layout.root,
                rest=", which holds something other than a simulation; name a new directory",
            )
        return
    try:
        held = json.loads(layout.recipe.read_bytes())
    except ValueError as error:
        raise Corrupt(f"{layout.recipe} cannot be read; name a new output directory") from error
    require_same(held, simulation, f"output is {str(layout.root)!r}", "directory")


def require_same(recipe: Mapping[str, Any], simulation: Simulation, place: str, kind: str) -> None:
    """Raise InvalidInput unless the recipe recorded at a place of that kind is this simulation's."""
    held, wanted = _flat(recipe), _flat(json.loads(json.dumps(simulation.to_document())))
    for key in sorted({*held, *wanted} - {"name"}):  # the name is but a label
        if held.get(key) != wanted.get(key):
            raise InvalidInput(
                f"{place}, which holds a simulation whose {key} is {_said(held, key)}, not {_said(wanted, key)}; "
                f"name another {kind}",
                field=key,
                value=_said(held, key),
            )


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten a recipe's tables to keys with a dot, as --set takes them."""
    flat = {key: value for key, value in document.items() if key not in TABLES}
    return flat | {f"{table}.{key}": value for table in TABLES for key, value in document.get(table, {}).items()}


def _said(document: Mapping[str, Any], key: str) -> str:
    return repr(document[key]) if key in document else "not given"


def bundle_recipe(simulation: Simulation, data: SplitDataSet) -> BundleRecipe:
    """Return the recipe of the simulation's bundle."""
    customary = None if data.input.kind == "tokens" else preprocessing(data)
    return BundleRecipe(
        name=simulation.dataset or simulation.name,
        model=simulation.model,
        input=data.input,
        target=_scaled(data.target, data.train),
        task=simulation.task_name,
        method=simulation.device_method,
        settings=simulation.settings,
        optimiser=simulation.optimiser,
        mean=customary.mean if customary else None,
        deviation=customary.deviation if customary else None,
        seed=simulation.run.seed,
        projection=simulation.head or None,
        augmentation=simulation.augmentation_name,
        server_rule=simulation.rule,
    )


def _scaled(target: TargetSpec, train: DataSet) -> TargetSpec:
    """Return the target with the scales of its values in the training samples, where it has none."""
    if target.kind != "values" or target.mean or target.deviation:
        return target
    return scaled_target(target, train.known_targets())
