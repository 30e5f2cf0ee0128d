"""Which part of a model an error comes from."""

from traceback import walk_tb

from torch import nn


def failing_part(error: BaseException, model: nn.Module) -> str:
    """The innermost part of a model that was at work when an error arose, as a prefix of a message.

    Such as ``'head.fc (Linear): '``; ``''`` where it was none.
    """
    names = {id(module): f'{name} ({type(module).__name__}): ' for name, module in model.named_modules() if name}
    owners = [id(frame.f_locals.get('self')) for frame, _ in walk_tb(error.__traceback__)]
    return next((names[owner] for owner in reversed(owners) if owner in names), '')
