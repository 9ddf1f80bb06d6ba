"""A patch for programs in tests, see `forked_process`: engineers' commands believe that this machine has no sandbox."""

from __future__ import annotations

from moonfed.sandbox import plan_process

plan_process.available_level = lambda: "off"  # type: ignore[attr-defined]
