"""The local objectives, which a plan compiles: one module and one line of `METHODS` each; see `method`."""

from __future__ import annotations

from typing import Any

from moonfed.registry import Registry

_PACKAGE = "moonfed.export.methods"
LOCAL_ONLY = frozenset({"solo"})  # whose devices exchange nothing: for simulations, not for bundles
METHODS: Registry[Any] = Registry(  # of methods; mypy cannot know the settings that each takes
    "method",
    "moonfed.methods",
    f"{_PACKAGE}.method:Method",
    {
        "fedavg": f"{_PACKAGE}.fedavg:FedAvg",
        "fedprox": f"{_PACKAGE}.fedprox:FedProx",
        "scaffold": f"{_PACKAGE}.scaffold:Scaffold",
        "moon": f"{_PACKAGE}.moon:Moon",
        "ditto": f"{_PACKAGE}.ditto:Ditto",
        "l2": f"{_PACKAGE}.l2:L2",
        "fedssc": f"{_PACKAGE}.fedssc:FedSsc",
        "fedproc": f"{_PACKAGE}.fedproc:FedProc",
        "fedssc-two-stage": f"{_PACKAGE}.fedssc_two_stage:FedSscTwoStage",
        "fedssc-local-contrast": f"{_PACKAGE}.fedssc_local_contrast:FedSscLocalContrast",
        "solo": f"{_PACKAGE}.solo:Solo",
    },
)
