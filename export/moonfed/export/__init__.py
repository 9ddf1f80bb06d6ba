"""Compiling: networks, training plans, bundles and ONNX graphs; the evaluator; and the moonfed-export program.

`build_bundle` builds a bundle from Python, for example in a notebook; docs/python-client.md has an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import moonfed.models.no_telemetry  # noqa: F401 - before onnxruntime

if TYPE_CHECKING:
    from moonfed.export.build import build_bundle

__all__ = ["build_bundle"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of a module
    if name == "build_bundle":  # imports torch, which most commands of moonfed-export do without
        from moonfed.export.build import build_bundle

        return build_bundle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
