"""A patch for programs in tests, see `forked_process`: the kernel has no Landlock."""

from __future__ import annotations

from moonfed.sandbox import policy

policy.landlock_version = lambda: 0  # type: ignore[attr-defined]
