"""SOLO: every device trains alone on its own data and exchanges nothing; the baseline of federated learning.

    loss = CE(F_w(x), y)

Source: Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021), section 4.1: 300 local epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from moonfed.export.methods.method import Method, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Solo(Method):
    """SOLO has no hyperparameters of its own."""

    exchanges: ClassVar[bool] = False
    default_epochs: ClassVar[int] = 300

    def objective(self) -> Objective:
        """Return the task's loss alone."""
        return Objective()
