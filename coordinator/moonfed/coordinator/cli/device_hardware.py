"""Formatting of a device's hardware and software, as it reported them."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.labels import INFERENCE_ONLY

FORMATTED = frozenset({"memory", "accelerator", "cuda", "threads", "torch", "jetpack", "system", INFERENCE_ONLY})
UNKNOWN = "-"  # a device that has never connected


def hardware_rows(platform: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return names and values."""
    jetpack = platform.get("jetpack")
    return [
        ("hardware", _hardware(platform)),
        ("memory", _memory(platform)),
        ("trains on", _trains_on(platform)),
        ("torch", platform.get("torch") or UNKNOWN),
        ("system", f"JetPack {jetpack}" if jetpack else platform.get("system") or UNKNOWN),
    ]


def _hardware(platform: Mapping[str, str]) -> str:
    """Format the training hardware: the GPU if the device trains on it, else the processor."""
    processor = platform.get("processor") or platform.get("architecture") or UNKNOWN
    return platform.get("gpu") or processor if platform.get("accelerator") == "cuda" else processor


def _memory(platform: Mapping[str, str]) -> str:
    """Format a size given in bytes."""
    memory = platform.get("memory", "")
    return f"{int(memory) / 1e9:.1f} GB" if memory.isdecimal() else UNKNOWN


def _trains_on(platform: Mapping[str, str]) -> str:
    if INFERENCE_ONLY in platform:
        return "nothing: it is for inference only"
    kind = platform.get("accelerator") or UNKNOWN
    detail = platform.get("cuda") if kind == "cuda" else platform.get("threads")
    if not detail:
        return kind
    return f"cuda {detail}" if kind == "cuda" else f"{kind}, {detail} thread{'s' if detail != '1' else ''}"
