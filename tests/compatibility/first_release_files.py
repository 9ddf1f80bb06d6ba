"""The files of the first release, and what its programs said about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIRST_RELEASE = Path(__file__).parent / "first_release"
EXPECTED: dict[str, Any] = json.loads((FIRST_RELEASE / "expected.json").read_bytes())
