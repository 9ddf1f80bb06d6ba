"""Call every operator that a plan may use with hostile arguments, and report those that crash the process.

Run it after a change of torch or of the lists of operators: `python -m tools.search_operators`. It needs gcc:
`guarded_malloc.c` makes the process crash when an operator reads or writes beyond a tensor. Each is called in a
child process, forwards and backwards, with tensors of unequal shapes, types and layouts, and with sizes and indices
that are negative or huge. As a control, torch's fused optimiser, which no plan may use, must be found.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from moonfed.plan.inspection.operator_list import allowed_operators

SOURCE = Path(__file__).with_name("guarded_malloc.c")
CONTROL = "aten::_fused_sgd_"
CALL_SECONDS = 10  # timeout of a call; a slow call is not a crash
INTEGERS = (-(2**63), -(2**31), -7, -2, -1, 0, 1, 1, 2, 2, 3, 4, 5, 8, 100, 2**31, 2**40, 2**62, 2**63 - 1)
FLOATS = (0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, 1e30, -1e30, math.inf, -math.inf, math.nan)
SHAPES = ((), (0,), (1,), (3,), (4,), (8,), (3, 4), (4, 4), (2, 3, 4), (1, 3, 8, 8), (2, 4, 4, 4), (1, 2, 4, 4, 4))
TYPES = (
    (torch.float32,) * 6 + (torch.int64,) * 4 + (torch.float64, torch.bool, torch.uint8, torch.int32, torch.bfloat16)
)
TEXTS = ("mean", "sum", "none", "constant", "reflect", "replicate", "circular", "floor", "trunc", "tanh", "")

# Numbers that stand for data types, layouts and memory formats; torch does not check others, and crashes.
VALUES: Mapping[str, Sequence[Any]] = {
    "float": FLOATS, "bool": (True, False), "str": TEXTS, "ScalarType": range(12),
    "Layout": (0, 0, 0, 1), "MemoryFormat": range(4), "Device": (torch.device("cpu"), torch.device("meta")),
}  # fmt: skip


class Arguments:
    """Random arguments; of the tensors of one call, most have the same shape or nearly so."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._shape = self._random.choice(SHAPES)
        self._type = self._random.choice(TYPES)
        self._length = self._random.choice((1, 1, 2, 3, 4))  # of lists
        torch.manual_seed(seed)

    def of(self, kind: str) -> Any:
        """Return an argument of a schema's type."""
        choose, chance = self._random.choice, self._random.random()
        if kind.startswith("Optional["):
            return None if chance < 0.4 else self.of(kind[9:-1])
        if kind.startswith("List["):
            return [self.of(kind[5:-1]) for _ in range(self._length if chance < 0.8 else choose((0, 1, 2, 5)))]
        if kind == "Tensor":
            return self._tensor()
        if kind in ("int", "SymInt"):
            return choose(INTEGERS) if chance < 0.6 else choose((0, 1, 2, 3))
        if kind in ("number", "Scalar"):
            return choose(INTEGERS if chance < 0.5 else FLOATS)
        if kind not in VALUES:
            raise TypeError(kind)
        return choose(VALUES[kind])

    def _tensor(self) -> torch.Tensor:
        choose, chance = self._random.choice, self._random.random()
        shape = list(self._shape if chance < 0.7 else choose(SHAPES))
        if shape and self._random.random() < 0.25:
            shape[self._random.randrange(len(shape))] = choose((0, 1, 2, 5, 17))
        kind = self._type if self._random.random() < 0.6 else choose(TYPES)
        if kind.is_floating_point:
            found = torch.randn(shape).to(kind)
        elif self._random.random() < 0.5:
            found = torch.randint(0, 3, shape).to(kind)
        else:
            found = torch.tensor([choose(INTEGERS) for _ in range(math.prod(shape))]).reshape(shape).to(kind)
        found = self._laid_out(found)
        return found.to("meta") if self._random.random() < 0.1 else found

    def _laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, sometimes with another layout or requiring a gradient."""
        chance = self._random.random()
        if chance < 0.1 and tensor.dim() > 1:
            tensor = tensor.transpose(0, -1)
        elif chance < 0.15 and tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        elif chance < 0.2:
            tensor = tensor[..., None].expand(*tensor.shape, 3)
        elif chance < 0.25 and tensor.dim():
            tensor = tensor[::2]
        if tensor.is_floating_point() and self._random.random() < 0.4:
            tensor = tensor.detach().requires_grad_()
        return tensor


def schemas() -> list[Any]:
    """Return the schemas of the operators that plans may use and that take tensors or create them, by name."""
    torch_c: Any = torch._C
    allowed = allowed_operators() | {CONTROL}
    found = {}
    for schema in torch_c._jit_get_all_schemas():
        name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        if {name, f"{schema.name}.*"} & allowed and "Tensor" in str(schema) and schema.name.startswith("aten::"):
            found[name] = schema
    return [found[name] for name in sorted(found)]


def call(schema: Any, seed: int) -> None:
    """Call an operator forwards, and sometimes backwards; any error is acceptable, except for a crash."""
    torch_c: Any = torch._C
    operator, _, _ = torch_c._get_operation_overload(schema.name, schema.overload_name)
    arguments = Arguments(seed)
    given = {each.name: arguments.of(_kind(each)) for each in schema.arguments}
    if not _is_affordable(given) or not _is_permitted(schema.name, given):
        return
    positional = [given[each.name] for each in schema.arguments if not each.kwarg_only]
    named = {each.name: given[each.name] for each in schema.arguments if each.kwarg_only}
    with torch.set_grad_enabled(seed % 3 != 0):
        result = operator(*positional, **named)
    outputs = [each for each in _tensors(result) if each.requires_grad and each.is_floating_point()]
    inputs = [each for each in _tensors(positional) if each.requires_grad and each.is_leaf]
    if outputs and inputs:
        total = torch.stack([each.double().sum() for each in outputs]).sum()
        torch.autograd.grad([total], inputs, allow_unused=True)


def _is_affordable(given: dict[str, Any]) -> bool:
    """Reject arguments that would merely be slow: ranges with many numbers."""
    return not ("step" in given and "end" in given and not isinstance(given.get("self"), torch.Tensor))


def _kind(argument: Any) -> str:
    """Return an argument's type; some operators declare a data type as an integer."""
    declared = str(argument.real_type)
    return declared.replace("int", "ScalarType") if argument.name == "dtype" else declared


def _is_permitted(operator: str, given: dict[str, Any]) -> bool:
    """Reject what the inspection of plans rejects: a copy without device and data type."""
    return operator != "aten::to" or not given.get("copy") or {given.get("device"), given.get("dtype")} != {None}


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def work(names: Path, place: Path, begin: int, trials: int) -> None:
    """Call the operators from a position on; the position is in the file `place` before each call."""
    torch.set_num_threads(1)
    listed = {f"{each.name}.{each.overload_name}": each for each in schemas()}
    chosen = [listed[name] for name in names.read_text().split()]
    with place.open("r+b", buffering=0) as written:
        for position in range(begin, len(chosen) * trials):
            written.seek(0)
            written.write(b"%020d" % position)
            schema, seed = chosen[position // trials], position % trials
            if sys.stdout.isatty():
                print(schema.name, seed)
            signal.alarm(CALL_SECONDS)
            with suppress(Exception):
                call(schema, seed)


def search(names: list[str], trials: int, guard: str, report: Callable[[str], None]) -> dict[str, dict[str, int]]:
    """Call operators in child processes; count, for each operator, the processes that each signal ended."""
    crashes: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as directory:
        library, place, listed = (Path(directory, name) for name in ("guarded.so", "place", "names"))
        compiler = shutil.which("gcc") or "gcc"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
        listed.write_text("\n".join(names))
        environment = {**os.environ, "LD_PRELOAD": str(library), "GUARD": guard, "OMP_NUM_THREADS": "1"}
        position, end = 0, len(names) * trials
        while position < end:
            place.write_bytes(b"%020d" % position)
            words = ["--work", str(listed), str(place), str(position), str(trials)]
            command = [sys.executable, "-W", "ignore", "-m", "tools.search_operators", *words]
            done = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False)
            position = int(place.read_bytes())
            if done.returncode == 0:
                return crashes
            name, seed = names[position // trials], position % trials
            kind = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit {done.returncode}"
            if kind != "SIGALRM":
                report(f"{name}, seed {seed}: {kind}")
                found = crashes.setdefault(name, {})
                found[kind] = found.get(kind, 0) + 1
            position += 1
            if sum(crashes.get(name, {}).values()) >= 3 or kind == "SIGALRM":  # on to the next operator
                position = (position // trials + 1) * trials
    return crashes


def main() -> None:
    """Search, and exit with 1 if an operator other than the control crashes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=400, help="calls of each operator")
    parser.add_argument("--only", default="", help="a pattern of operators' names")
    parser.add_argument("--guard", choices=("after", "before"), default="after", help="position of guard pages")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(Path(options.work[0]), Path(options.work[1]), *map(int, options.work[2:]))
        return
    names = [f"{each.name}.{each.overload_name}" for each in schemas()]
    names = [name for name in names if re.search(options.only, name)]
    began = time.monotonic()
    crashes = search(names, options.trials, options.guard, lambda line: print(line, flush=True))
    print(f"{len(names)} operators, {options.trials} calls of each, {time.monotonic() - began:.0f} s")
    if crashes.keys() - {f"{CONTROL}."}:
        sys.exit(1)


if __name__ == "__main__":
    main()
