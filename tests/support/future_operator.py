"""A plan's archive that calls operators which this torch has only while the archive is made."""

from __future__ import annotations

import torch

from moonfed.plan.inspection.older_torch import requirements
from tests.support.attack_plans import archive_of

OPERATOR = "future::upsample_sinc2d"


def archive_from_the_future() -> tuple[bytes, tuple[str, ...]]:
    """Return an archive as a newer torch would write it, and the operators that it calls."""
    library = torch.library.Library("future", "DEF")  # type: ignore[no-untyped-call]
    try:
        library.define("upsample_sinc2d(Tensor inputs) -> Tensor")  # type: ignore[no-untyped-call]

        class Upsampled(torch.nn.Module):
            def forward(self, inputs: torch.Tensor) -> torch.Tensor:
                return torch.relu(torch.ops.future.upsample_sinc2d(inputs))

        archive = archive_of(Upsampled())
        return archive, requirements(archive)[1]
    finally:
        library._destroy()  # type: ignore[no-untyped-call]
