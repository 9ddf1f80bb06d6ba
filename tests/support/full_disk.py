"""A patch for programs in tests, see `forked_process`: the disk is full when its free space is asked for."""

from __future__ import annotations

import shutil
from unittest.mock import Mock

shutil.disk_usage = Mock(return_value=Mock(total=1, used=1, free=0))
