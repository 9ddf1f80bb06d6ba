"""What a plan does with its lists of tensors, for scripts."""

import torch


def copy_into(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copies tensors of the same shapes; a copy alone would broadcast what does not fit."""
    if len(targets) != len(sources):
        raise ValueError("the model has " + str(len(sources)) + " tensors; the plan has " + str(len(targets)))
    with torch.no_grad():
        for index in range(len(targets)):
            if targets[index].size() != sources[index].size():
                raise ValueError("tensor " + str(index) + " of the model has another shape than the plan's")
            targets[index].copy_(sources[index])


def lie_channels_last(tensors: list[torch.Tensor]) -> bool:
    """Whether any tensor does; one that lies both ways, such as the weights of a 1x1 convolution, does not count."""
    for tensor in tensors:  # noqa: SIM110 - not in scripts
        if tensor.dim() == 4 and not tensor.is_contiguous():
            return True
    return False


def pick(tensors: list[torch.Tensor], places: list[int]) -> list[torch.Tensor]:
    """The tensors at those places."""
    return [tensors[place] for place in places]
