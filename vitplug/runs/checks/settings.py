"""Settings of a training that mmengine and torch would refuse late, or not at all."""

from mmengine.registry import OPTIMIZERS

from vitplug.config.parts import as_list, registered

INFINITE = int(1e9)  # what mmengine's schedules have for no end
# Larger rates leave the range of float32 in an optimizer's step, which torch says without a name.
HIGHEST_RATE = 1e30


def check_optimizer(cfg) -> None:
    """Checks the type and the learning rate of the optimizer, which mmengine and torch name in no error.

    Raises:
        ValueError: if there is none of this name, or the rate is no number, negative or too large.
    """
    optimizer = (cfg.get('optim_wrapper') or {}).get('optimizer')
    if optimizer is None:
        return
    if not isinstance(optimizer, dict) or registered(OPTIMIZERS, optimizer.get('type'), cfg.default_scope) is None:
        raise ValueError(
            f'optim_wrapper.optimizer = {optimizer!r}: expected a dict with the type of an optimizer, such as AdamW'
        )
    rate = optimizer.get('lr', 0.0)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= HIGHEST_RATE:
        raise ValueError(f'optim_wrapper.optimizer.lr = {rate!r}: expected a number from 0 to {HIGHEST_RATE:g}')


def long_schedules(cfg) -> list[str]:
    """Says which schedules go on after the end of the training, and so do not come to theirs."""
    loop = cfg.get('train_cfg') or {}
    lengths = {True: ('epochs', loop.get('max_epochs')), False: ('iterations', loop.get('max_iters'))}
    remarks = []
    for number, schedule in enumerate(as_list(cfg.get('param_scheduler'))):
        unit, length = lengths[bool(schedule.get('by_epoch', True))]
        end = schedule.get('end')
        if isinstance(end, int) and isinstance(length, int) and length < end < INFINITE:
            remarks.append(
                f'param_scheduler.{number} ({schedule.get("type")}) ends after {end} {unit}, the training after '
                f'{length}: set param_scheduler to schedules of this length, or train longer'
            )
    return remarks
