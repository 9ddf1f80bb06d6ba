"""Privileges of the superuser (capabilities), which a process gives up; see capabilities(7) and linux/capability.h."""

from __future__ import annotations

import ctypes
import os
import sys

_VERSION = 0x20080522  # with 64 capabilities, as two words each
_KEPT = 1 << 2  # CAP_DAC_READ_SEARCH: libraries may be in another user's directory


def drop_privileges() -> None:
    """Give up all privileges of this thread, and of those that it starts, except that to read files.

    Without them, modes of files apply to the superuser, too, and no file can be made immutable.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    header, words = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()
    if library.capget(header, words) == 0:  # effective, permitted and inheritable ones, twice
        if not any(word & ~_KEPT for word in words):
            return
        if library.capset(header, (ctypes.c_uint32 * 6)(words[0] & _KEPT, words[1] & _KEPT)) == 0:
            return
    raise OSError(ctypes.get_errno(), f"capabilities: {os.strerror(ctypes.get_errno())}")
