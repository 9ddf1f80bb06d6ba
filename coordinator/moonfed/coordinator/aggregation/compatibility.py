"""Checks that the coordinator can aggregate a bundle's updates, and that robust aggregation applies to them."""

from __future__ import annotations

from dataclasses import replace

from moonfed.blobs.schema import TensorSpec
from moonfed.bundle.manifest import CLASS_MEANS, CONSTANT, PROTOTYPES, SGD, VARIATE, VARIATE_CHANGE, Manifest
from moonfed.control.run_settings import MEAN, RunSettings
from moonfed.coordinator.aggregation.prototypes import MASK, MEANS, PRESENT
from moonfed.coordinator.aggregation.robust.config import DEFAULT_CLIP_FACTOR, DEFAULT_WEIGHT_CAP, build_reducer
from moonfed.coordinator.aggregation.robust.reducers.reducer import Reducer
from moonfed.errors import InvalidInput
from moonfed.server_rules import SERVER_RULES


def require_consistent(manifest: Manifest) -> None:
    """Raise InvalidInput, naming the field, if the bundle's updates cannot be aggregated."""
    for down, up in ((VARIATE, VARIATE_CHANGE), (PROTOTYPES, CLASS_MEANS)):
        if (down in manifest.downlink) != (up in manifest.uplink):
            raise InvalidInput(
                f"downlink is {sorted(manifest.downlink)} and uplink {sorted(manifest.uplink)}; "
                f"{down!r} and {up!r} must be declared together"
            )
    if VARIATE in manifest.downlink:
        parameters = _shapes(manifest.parameters)
        _require("downlink 'variate'", manifest.downlink[VARIATE], parameters)
        _require("uplink 'variate_change'", manifest.uplink[VARIATE_CHANGE], parameters)
    if PROTOTYPES in manifest.downlink:
        per_class, width = (len(manifest.classes),), _width(manifest.downlink[PROTOTYPES])
        table = (*per_class, width)
        _require("downlink 'prototypes'", manifest.downlink[PROTOTYPES], {PRESENT: per_class, PROTOTYPES: table})
        _require("uplink 'class_means'", manifest.uplink[CLASS_MEANS], {MASK: per_class, MEANS: table})
    rule = SERVER_RULES.build(manifest.server_rule)
    if rule.counts_steps and manifest.plan.optimiser != SGD:
        raise InvalidInput(
            field="plan.optimiser",
            value=manifest.plan.optimiser,
            rest=f"; with server_rule {rule.name!r}, which counts steps of SGD, it must be {SGD!r}",
        )
    if rule.counts_steps and manifest.plan.step_schedule != CONSTANT:
        raise InvalidInput(
            field="plan.step_schedule",
            value=manifest.plan.step_schedule,
            rest=f"; with server_rule {rule.name!r}, which counts equal steps, it must be {CONSTANT!r}",
        )
    for _, momentum in (
        (0, manifest.training.hyperparameters.get("momentum", 0.0)),
        *manifest.schedules.get("momentum", ()),
    ):
        if rule.counts_steps and not 0 <= momentum < 1:
            raise InvalidInput(
                field="momentum", value=momentum, rest=f"; with server_rule {rule.name!r} it must be from 0, below 1"
            )


def with_default_bounds(settings: RunSettings, manifest: Manifest) -> RunSettings:
    """Return the settings of a run of this bundle: unless they say otherwise, with the bounds its method allows."""
    if settings.trusting or settings.is_robust:
        return settings
    if SERVER_RULES.build(manifest.server_rule).counts_steps:
        return replace(settings, trusting=True)
    clip_factor = 0.0 if VARIATE in manifest.downlink else DEFAULT_CLIP_FACTOR
    return replace(settings, weight_cap=DEFAULT_WEIGHT_CAP, clip_factor=clip_factor)


def require_robust_aggregation(manifest: Manifest, settings: RunSettings, fewest_updates: int) -> None:
    """Raise InvalidInput, saying what to change, if robust aggregation could not protect this bundle's runs.

    `fewest_updates`: the smallest number of updates that a round may close with.
    """
    reducer, rule = build_reducer(settings), SERVER_RULES.build(manifest.server_rule)
    if not settings.is_robust:
        return
    if rule.counts_steps:
        raise InvalidInput(
            field="server_rule",
            value=rule.name,
            rest=(
                ", which trusts the number of steps that devices report, whatever the robust settings; "
                "export with another server rule, or start without robust aggregation"
            ),
        )
    if VARIATE in manifest.downlink and (settings.clips or settings.reducer != MEAN):
        raise InvalidInput(
            field="method",
            value=manifest.method,
            rest=(
                ", whose control variate must be the mean of those that the devices keep; clip_norm, "
                "clip_factor and reducers other than 'mean' would break that: leave them out"
            ),
        )
    if PROTOTYPES in manifest.downlink:
        _require_robust_prototypes(manifest, settings, reducer)
    if fewest_updates < reducer.updates_needed:
        raise InvalidInput(
            f"a round may close with {fewest_updates} {'update' if fewest_updates == 1 else 'updates'}; "
            f"{reducer.requirement}: raise the quorum and the number of devices per round",
            field="quorum",
            value=fewest_updates,
        )


def _require_robust_prototypes(manifest: Manifest, settings: RunSettings, reducer: Reducer) -> None:
    if settings.clip_norm and not settings.clip_factor and settings.reducer == MEAN:
        raise InvalidInput(
            field="clip_norm",
            value=settings.clip_norm,
            rest=(
                ", which bounds models but not the class means that this bundle's devices share; give "
                "clip_factor or a reducer as well"
            ),
        )
    if 0 < manifest.prototype_devices < reducer.updates_needed:
        raise InvalidInput(
            field="the bundle's prototype_devices",
            value=manifest.prototype_devices,
            rest=f"; {reducer.requirement}: export with more, or with 0 for all",
        )


def _require(field: str, specs: tuple[TensorSpec, ...], expected: dict[str, tuple[int, ...]]) -> None:
    if _shapes(specs) != expected:
        raise InvalidInput(f"{field} has the tensors {_shapes(specs)}; it must have {expected}")


def _shapes(specs: tuple[TensorSpec, ...]) -> dict[str, tuple[int, ...]]:
    return {spec.name: spec.shape for spec in specs}


def _width(specs: tuple[TensorSpec, ...]) -> int:
    return next((spec.shape[-1] for spec in specs if spec.name == PROTOTYPES and spec.shape), 0)
