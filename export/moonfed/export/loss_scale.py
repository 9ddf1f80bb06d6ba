"""Loss scaling for training in float16, inside TorchScript and without waiting for the accelerator.

Small gradients would be 0 in float16. So gradients are those of the loss times a scale, and divided by it in float32. A
step whose gradients overflow is skipped and halves the scale; 2,000 steps without one double it.
Source: Micikevicius et al., Mixed Precision Training (ICLR 2018), section 3.2, as torch.amp.GradScaler does it.
"""

import torch

GROWTH, BACKOFF, PATIENCE = 2.0, 0.5, 2000


class LossScale(torch.nn.Module):
    """The scale of one round; off until it is given an initial one."""

    def __init__(self) -> None:
        super().__init__()
        self.initial = 0.0  # 0: losses are not scaled
        self.scale = torch.empty(0)
        self.streak = torch.empty(0, dtype=torch.int32)  # steps without overflow
        self.overflow = torch.empty(0)  # 1 if the latest step was skipped, else 0
        self.skipped = torch.empty(0)  # steps of this round

    def begin(self, device: torch.device) -> None:
        """The round begins; so does the scale."""
        if self.initial > 0.0:
            self.scale = torch.full([], self.initial, device=device)
            self.streak = torch.zeros([], dtype=torch.int32, device=device)
            self.overflow = torch.zeros([], device=device)
            self.skipped = torch.zeros([], device=device)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """What gradients are to be taken of."""
        return loss * self.scale if self.initial > 0.0 else loss

    def unscaled(self, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients of the loss itself; notes whether they overflowed."""
        if self.initial == 0.0:
            return gradients
        # Not in place: two parameters may have been given one and the same gradient.
        used: list[torch.Tensor] = []
        for gradient in gradients:
            if gradient is not None:
                used.append(gradient)  # noqa: PERF401 - TorchScript refines no types in comprehensions
        divided = torch._foreach_mul(used, self.scale.reciprocal())
        self.overflow.zero_()
        torch.ops.aten._amp_foreach_non_finite_check_and_unscale_(
            divided, self.overflow, torch.ones_like(self.overflow)
        )
        found: list[torch.Tensor | None] = []
        place = 0
        for gradient in gradients:
            if gradient is None:
                found.append(None)
            else:
                found.append(divided[place])
                place += 1
        return found

    def skip(self) -> torch.Tensor | None:
        """1 if the latest step is to be skipped, else 0; None if losses are not scaled."""
        if self.initial > 0.0:
            return self.overflow
        return None

    def update(self, growth: float = GROWTH, backoff: float = BACKOFF, patience: int = PATIENCE) -> None:
        """Counts the step, and sets the scale for the next; the defaults stand here because scripts see no globals."""
        if self.initial > 0.0:
            self.skipped += self.overflow
            torch.ops.aten._amp_update_scale_(self.scale, self.streak, self.overflow, growth, backoff, patience)

    def taken(self, steps: int) -> int:
        """How many of the round's steps were not skipped."""
        return steps - int(self.skipped) if self.initial > 0.0 else steps
