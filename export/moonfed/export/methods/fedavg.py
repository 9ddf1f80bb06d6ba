"""FedAvg: every device minimises the task's loss, and the coordinator averages.

Source: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, Communication-Efficient Learning of Deep Networks from
Decentralized Data (AISTATS 2017), algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from moonfed.export.methods.method import Method, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvg(Method):
    """FedAvg has no hyperparameters of its own."""

    def objective(self) -> Objective:
        """Return the objective: the task's loss alone."""
        return Objective()
