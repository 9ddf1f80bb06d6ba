"""A patch for programs in tests, see `forked_process`: plans are loaded without inspection."""

from __future__ import annotations

from moonfed.plan import interface as plan
from moonfed.plan.inspection import operators

plan.read_plan = lambda path: path.read_bytes()  # type: ignore[attr-defined]
operators._require_allowed = lambda found: None
operators.require_valid = lambda *_: None  # type: ignore[attr-defined]
