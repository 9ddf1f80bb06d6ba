"""The local objectives, one module each, and their registry: adding a method is one module and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from export.methods.base import Method, MethodClass
from export.methods.fedavg import FedAvg
from export.methods.moon import Moon

METHODS: Mapping[str, MethodClass] = {
    "fedavg": FedAvg,
    "moon": Moon,
}

__all__ = ["METHODS", "Method", "MethodClass"]
