"""A patch of a program of a test, see `forked_process`: it may have few files open."""

from __future__ import annotations

import resource

FEW = 300

resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))
