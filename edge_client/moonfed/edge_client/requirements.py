"""Requirements of a plan that are known before it is loaded."""

from __future__ import annotations

from moonfed.bundle.manifest import Manifest
from moonfed.errors import InvalidInput


def require_samples(manifest: Manifest, samples: int) -> None:
    """Raise InvalidInput if the plan needs more samples to train on."""
    least = max(1, manifest.plan.minimum_samples)
    if samples < least:
        raise InvalidInput(
            f"this device has {samples} samples to train on; the plan needs at least {least}",
            field="samples",
            value=samples,
        )
