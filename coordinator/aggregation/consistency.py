"""Whether a bundle's roles and settings are such that the coordinator can aggregate them."""

from __future__ import annotations

from coordinator.aggregation.prototypes import COUNTS, MEANS, PRESENT
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
    for _, momentum in ((0, manifest.hyperparameters.get("momentum", 0.0)), *manifest.schedules.get("momentum", ())):
        if isinstance(manifest.server_rule, FedNova) and not 0 <= momentum < 1:
            raise InvalidInput(f"momentum is {momentum}; with server_rule 'fednova' it must be from 0, below 1")


def _require(field: str, specs: tuple[TensorSpec, ...], expected: dict[str, tuple[int, ...]]) -> None:
    if _shapes(specs) != expected:
        raise InvalidInput(f"{field} has the tensors {_shapes(specs)}; it must have {expected}")


def _shapes(specs: tuple[TensorSpec, ...]) -> dict[str, tuple[int, ...]]:
    return {spec.name: spec.shape for spec in specs}


def _width(specs: tuple[TensorSpec, ...]) -> int:
    return next((spec.shape[-1] for spec in specs if spec.name == PROTOTYPES and spec.shape), 0)
