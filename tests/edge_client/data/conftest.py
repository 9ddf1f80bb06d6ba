from __future__ import annotations

from tests.common.data.conftest import npz, pictures

__all__ = ["npz", "pictures"]
