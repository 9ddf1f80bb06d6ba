"""Lists of tensors in TorchScript, which eager PyTorch calls tuples."""

import torch


def largest(left: int, right: int) -> int:
    """Return the larger number, which may be a symbol outside of scripts."""
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return max(left, right)
    found: int = torch.sym_max(left, right)  # type: ignore[no-untyped-call]
    return found


def rounded(number: float) -> int:
    """Return a number of steps to the nearest integer, which may be a symbol outside of scripts."""
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return int(number + 0.5)
    found: int = torch.sym_int(number + 0.5)  # type: ignore[no-untyped-call]
    return found


def copy_into(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy tensors of the same shapes; a plain copy would broadcast mismatching shapes."""
    if len(targets) != len(sources):
        raise ValueError("the model has " + str(len(sources)) + " tensors; the plan has " + str(len(targets)))
    with torch.no_grad():
        for index in range(len(targets)):
            if targets[index].size() != sources[index].size():
                raise ValueError("tensor " + str(index) + " of the model has another shape than the plan's")
            targets[index].copy_(sources[index])


def any_channels_last(tensors: list[torch.Tensor]) -> bool:
    """Return True if any tensor is channels-last; one with both layouts, like a 1x1 kernel, does not count."""
    for tensor in tensors:  # noqa: SIM110 - not in scripts
        if tensor.dim() == 4 and not tensor.is_contiguous():
            return True
    return False


def sides_of(batch: torch.Tensor) -> list[int]:
    """Return the sides of one sample of a batch."""
    return [batch.size(dimension) for dimension in range(1, batch.dim())]


def product(sides: list[int]) -> int:
    """Return the product, 1 of none; TorchScript knows no math.prod."""
    found = 1
    for side in sides:
        found *= side
    return found


def shaped(batch: torch.Tensor, sides: list[int]) -> torch.Tensor:
    """Give the samples of a batch these sides."""
    shape = [batch.size(0)]
    shape.extend(sides)
    return batch.reshape(shape)


def pick(tensors: list[torch.Tensor], places: list[int]) -> list[torch.Tensor]:
    """Return the tensors at those positions."""
    return [tensors[place] for place in places]


def present(tensors: list[torch.Tensor | None]) -> list[torch.Tensor]:
    """Return the tensors that are not None."""
    found: list[torch.Tensor] = []
    for tensor in tensors:
        if tensor is not None:
            found.append(tensor)  # noqa: PERF401 - TorchScript does not refine types in comprehensions
    return found


def refilled(places: list[torch.Tensor | None], tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return the tensors in the places that are not None."""
    found: list[torch.Tensor | None] = []
    used = 0
    for place in places:
        if place is None:
            found.append(None)
        else:
            found.append(tensors[used])
            used += 1
    return found


def difference(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return left − right, one kernel for the whole list on an accelerator."""
    found: list[torch.Tensor] = torch._foreach_sub(left, right)  # type: ignore[assignment]
    return found


def squared_norm(vector: list[torch.Tensor]) -> torch.Tensor:
    """Return ‖·‖² of all tensors together, a scalar."""
    norms: list[torch.Tensor] = torch._foreach_norm(vector)  # type: ignore[assignment]
    return torch.stack(norms).square().sum()
