"""The local objectives, one module each, and their registry: adding a method is one module and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.export.methods.base import ExchangeShapes, Method, MethodClass, Objective
from moonfed.export.methods.fedavg import FedAvg
from moonfed.export.methods.fedproc import FedProc
from moonfed.export.methods.fedprox import FedProx
from moonfed.export.methods.fedssc import FedSsc
from moonfed.export.methods.fedssc_local_contrast import FedSscLocalContrast
from moonfed.export.methods.fedssc_two_stage import FedSscTwoStage
from moonfed.export.methods.l2 import L2
from moonfed.export.methods.moon import Moon
from moonfed.export.methods.scaffold import Scaffold
from moonfed.export.methods.solo import Solo

METHODS: Mapping[str, MethodClass] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "moon": Moon,
    "l2": L2,
    "fedssc": FedSsc,
    "fedproc": FedProc,
    "fedssc-two-stage": FedSscTwoStage,
    "fedssc-local-contrast": FedSscLocalContrast,
    "solo": Solo,
}

__all__ = ["METHODS", "ExchangeShapes", "Method", "MethodClass", "Objective"]
