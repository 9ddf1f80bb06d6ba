"""Releasing models: variants and their gate, model card, bill of materials, signature, model repository."""

from __future__ import annotations

import moonfed.models.no_telemetry  # noqa: F401 - before onnxruntime
