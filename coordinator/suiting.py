"""Whether a device that attends can take part in a run."""

from __future__ import annotations

from coordinator.attendance import Introduction
from coordinator.rounds.settings import Settings
from moonfed.labels import lacking, write_labels
from moonfed.manifest import Manifest


def misfit(introduction: Introduction, manifest: Manifest, settings: Settings) -> str | None:
    """What a device lacks that a run needs, as in "without the encoding int8"; None if it can take part."""
    if manifest.plan.interface not in introduction.plan_interfaces:
        return f"without the plan interface {manifest.plan.interface}"
    if unknown := settings.encodings.needed - set(introduction.encodings):
        return f"without the encoding {', '.join(sorted(unknown))}"
    if missing := lacking(introduction.labels, settings.labels):
        return f"without the label {write_labels(missing)}"
    return None
