"""Server rules: how the coordinator turns a round's updates into the next global model.

A rule is one module of this package and one line of `SERVER_RULES`; `server_rule` defines its interface. `export`
writes a rule's name and settings into a bundle, the coordinator runs it, and devices pass it on without importing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moonfed.registry import Registry, Selection

if TYPE_CHECKING:
    from moonfed.server_rules.server_rule import ServerRule

MEAN = "mean"
SERVER_RULES: Registry[ServerRule] = Registry(
    "server_rule",
    "moonfed.server_rules",
    "moonfed.server_rules.server_rule:ServerRule",
    {
        MEAN: "moonfed.server_rules.mean:MeanRule",
        "fedavgm": "moonfed.server_rules.fedavgm:FedAvgM",
        "fednova": "moonfed.server_rules.fednova:FedNova",
        "fedadam": "moonfed.server_rules.fedadam:FedAdam",
        "fedyogi": "moonfed.server_rules.fedyogi:FedYogi",
        "fedadagrad": "moonfed.server_rules.fedadagrad:FedAdagrad",
    },
)
DEFAULT_RULE = Selection(MEAN, {"weighting": "samples"})


def read_server_rule(document: Mapping[str, Any]) -> ServerRule:
    """Build a rule from its name and settings; InvalidInput names what is unknown or not allowed."""
    return SERVER_RULES.build(Selection.from_document(document, MEAN))
