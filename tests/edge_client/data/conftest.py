from __future__ import annotations

from tests.proto.data.conftest import npz, pictures

__all__ = ["npz", "pictures"]
