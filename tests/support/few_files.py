"""A patch for programs in tests, see `forked_process`: it may have few files open."""

from __future__ import annotations

import resource

FEW = 300

resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))
