"""Print the listed operators that the installed torch lacks, for newer_operators.txt.

Run it with an older torch, of which nothing else is needed:

    PYTHONPATH=.:proto OLD/bin/python -m tools.missing_operators
"""

from __future__ import annotations

from typing import Any

import torch

from moonfed.inspection.operator_list import allowed_names

LANGUAGE = "prim"  # conditions, loops and the like, which every release has


def missing() -> list[str]:
    """Return the names, without overloads, that are in the lists and not in torch's registry."""
    torch_c: Any = torch._C
    known = {schema.name for schema in torch_c._jit_get_all_schemas()}
    return sorted(name for name in allowed_names() - known if name.split("::")[0] not in (LANGUAGE, "moonfed"))


if __name__ == "__main__":
    print(f"torch {torch.__version__}")
    print("\n".join(missing()))
