"""Loss scaling for float16 training, inside TorchScript and without synchronising with the accelerator.

Small gradients would underflow in float16, so the loss is multiplied by a scale and the gradients are divided by it in
float32. A step whose gradients overflow is skipped and halves the scale; 2,000 steps without overflow double it.
Source: Micikevicius et al., Mixed Precision Training (ICLR 2018), section 3.2, as implemented by torch.amp.GradScaler.
"""

import torch

from moonfed.export.script_utils import present, refilled

GROWTH = 2.0
BACKOFF = 0.5
PATIENCE = 2000


class LossScale(torch.nn.Module):
    """The loss scale of one round; disabled while `initial` is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.initial = 0.0  # 0: losses are not scaled
        self.scale = torch.empty(0)
        self.streak = torch.empty(0, dtype=torch.int32)  # steps without overflow
        self.overflow = torch.empty(0)  # 1 if the latest step was skipped, else 0
        self.skipped = torch.empty(0)  # steps of this round

    def begin(self, device: torch.device) -> None:
        """Begin a round with the initial scale."""
        if self.initial > 0.0:
            self.scale = torch.full([], self.initial, device=device)
            self.streak = torch.zeros([], dtype=torch.int32, device=device)
            self.overflow = torch.zeros([], device=device)
            self.skipped = torch.zeros([], device=device)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the scaled loss, to compute gradients from."""
        return loss * self.scale if self.initial > 0.0 else loss

    def unscaled(self, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the gradients of the unscaled loss, and record whether they overflowed."""
        if self.initial == 0.0:
            return gradients
        # Not in place: two parameters may share a gradient tensor.
        divided = torch._foreach_mul(present(gradients), self.scale.reciprocal())
        self.overflow.zero_()
        torch.ops.aten._amp_foreach_non_finite_check_and_unscale_(
            divided, self.overflow, torch.ones_like(self.overflow)
        )
        return refilled(gradients, divided)  # type: ignore[arg-type]

    def skip(self) -> torch.Tensor | None:
        """Return 1 if the latest step must be skipped, else 0; None if losses are not scaled."""
        if self.initial > 0.0:
            return self.overflow
        return None

    def update(self, growth: float = GROWTH, backoff: float = BACKOFF, patience: int = PATIENCE) -> None:
        """Count the step and update the scale; the defaults are here because TorchScript reads no globals."""
        if self.initial > 0.0:
            self.skipped += self.overflow
            torch.ops.aten._amp_update_scale_(self.scale, self.streak, self.overflow, growth, backoff, patience)

    def taken(self, steps: int, device: torch.device) -> torch.Tensor:
        """Return how many of the round's steps were not skipped, a scalar."""
        taken = torch.full([], steps, dtype=torch.float64, device=device)
        return taken - self.skipped if self.initial > 0.0 else taken
