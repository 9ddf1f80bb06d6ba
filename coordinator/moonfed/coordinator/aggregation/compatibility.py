"""Whether a bundle's roles and settings are such that the coordinator can aggregate them."""

from __future__ import annotations

from moonfed.coordinator.aggregation.prototypes import COUNTS, MEANS, PRESENT
from moonfed.coordinator.aggregation.robust.config import RobustSettings
from moonfed.errors import InvalidInput
from moonfed.manifest import CLASS_MEANS, PROTOTYPES, VARIATE, VARIATE_CHANGE, Manifest
from moonfed.schema import TensorSpec
from moonfed.server_rules import FedNova


def require_consistent(manifest: Manifest) -> None:
    """Raises InvalidInput, naming the field, if what goes up could not become what goes down."""
    for down, up in ((VARIATE, VARIATE_CHANGE), (PROTOTYPES, CLASS_MEANS)):
        if (down in manifest.downlink) != (up in manifest.uplink):
            raise InvalidInput(
                f"downlink is {sorted(manifest.downlink)} and uplink {sorted(manifest.uplink)}; "
                f"{down!r} and {up!r} must come together"
            )
    if VARIATE in manifest.downlink:
        parameters = _shapes(manifest.parameters)
        _require("downlink 'variate'", manifest.downlink[VARIATE], parameters)
        _require("uplink 'variate_change'", manifest.uplink[VARIATE_CHANGE], parameters)
    if PROTOTYPES in manifest.downlink:
        per_class, width = (len(manifest.classes),), _width(manifest.downlink[PROTOTYPES])
        table = (*per_class, width)
        _require("downlink 'prototypes'", manifest.downlink[PROTOTYPES], {PRESENT: per_class, PROTOTYPES: table})
        _require("uplink 'class_means'", manifest.uplink[CLASS_MEANS], {COUNTS: per_class, MEANS: table})
    for _, momentum in (
        (0, manifest.training.hyperparameters.get("momentum", 0.0)),
        *manifest.schedules.get("momentum", ()),
    ):
        if isinstance(manifest.server_rule, FedNova) and not 0 <= momentum < 1:
            raise InvalidInput(f"momentum is {momentum}; with server_rule 'fednova' it must be from 0, below 1")


def require_robust_aggregation(manifest: Manifest, robust: RobustSettings, fewest_updates: int) -> None:
    """Raises InvalidInput, saying what to change, if robust aggregation would not hold for this bundle.

    `fewest_updates`: the smallest number of updates that a round may close with.
    """
    if not robust:
        return
    if isinstance(manifest.server_rule, FedNova):
        raise InvalidInput(
            "server_rule is 'fednova', by which a device counts by the steps that it says it took, whatever the "
            "robust settings; export with another server rule, or start without robust aggregation"
        )
    if VARIATE in manifest.downlink and (robust.clips or robust.reducer != "mean"):
        raise InvalidInput(
            f"method is {manifest.method!r}, whose control variate must be the mean of those that the devices keep; "
            "clip_norm, clip_factor and a reducer other than 'mean' would part them: leave them out"
        )
    if PROTOTYPES in manifest.downlink:
        _require_robust_prototypes(manifest, robust)
    robust.require_quorum(fewest_updates)


def _require_robust_prototypes(manifest: Manifest, robust: RobustSettings) -> None:
    if robust.clip_norm and not robust.clip_factor and robust.reducer == "mean":
        raise InvalidInput(
            f"clip_norm is {robust.clip_norm}, which bounds models but not the class means that this bundle's devices "
            "share; give clip_factor or a reducer as well"
        )
    if 0 < manifest.prototype_devices < robust.updates_needed:
        raise InvalidInput(
            f"the bundle's prototype_devices is {manifest.prototype_devices}; {robust.need}: "
            "export with more, or with 0 for all"
        )


def _require(field: str, specs: tuple[TensorSpec, ...], expected: dict[str, tuple[int, ...]]) -> None:
    if _shapes(specs) != expected:
        raise InvalidInput(f"{field} has the tensors {_shapes(specs)}; it must have {expected}")


def _shapes(specs: tuple[TensorSpec, ...]) -> dict[str, tuple[int, ...]]:
    return {spec.name: spec.shape for spec in specs}


def _width(specs: tuple[TensorSpec, ...]) -> int:
    return next((spec.shape[-1] for spec in specs if spec.name == PROTOTYPES and spec.shape), 0)
