"""Settings of a training that mmengine and torch would refuse late, or not at all."""

from mmengine.registry import OPTIMIZERS

from vitplug.config.parts import as_list, registered

from .environment import number_of_processes

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


def check_validations(cfg) -> None:
    """Checks how often a training validates.

    Raises:
        ValueError: if it is no number of epochs or iterations.
    """
    interval = (cfg.get('train_cfg') or {}).get('val_interval', 1)
    if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
        raise ValueError(f'train_cfg.val_interval = {interval!r}: expected a whole number from 1 on')


def check_preprocessors(cfg) -> None:
    """Checks that the preprocessor of the whole config is the model's, if the model has its own: mmengine reads that.

    Raises:
        ValueError: Names the settings that would not be read.
    """
    outer, own = cfg.get('data_preprocessor') or {}, (cfg.get('model') or {}).get('data_preprocessor') or {}
    unread = [key for key in outer if own and key != '_scope_' and outer[key] != own.get(key)]
    if unread:
        raise ValueError(
            f'data_preprocessor.{unread[0]} = {outer[unread[0]]!r} is never read, for the model has its own '
            f'data_preprocessor, with {own.get(unread[0])!r}: set both alike'
        )


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


def split_batch(cfg) -> None:
    """Sets the batch of each process such that all together have the batch that the learning rate is for.

    Args:
        cfg: The config; `train_dataloader.batch_size` is changed in place.

    Raises:
        ValueError: if the config does not say that batch, or the processes cannot share it equally.
    """
    base = (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    if base is None:
        raise ValueError('--auto-scale-batch needs auto_scale_lr.base_batch_size in the config')
    shares = _shares(cfg)
    if base % shares:
        raise ValueError(
            f'--auto-scale-batch: {_said(shares, cfg)} cannot share auto_scale_lr.base_batch_size = {base} images '
            'equally: start another number of processes, or use --auto-scale-lr'
        )
    cfg.train_dataloader.batch_size = base // shares


def unexpected_batch(cfg) -> list[str]:
    """Says if the images of a step are not as many as the learning rate is for, and how to adapt one of the two."""
    scaling, batch = cfg.get('auto_scale_lr') or {}, (cfg.get('train_dataloader') or {}).get('batch_size')
    base = scaling.get('base_batch_size')
    if not base or not batch or scaling.get('enable') or base == batch * _shares(cfg):
        return []
    total = batch * _shares(cfg)
    return [
        f'each step has {total} images ({batch} in each of {_said(_shares(cfg), cfg)}), but the learning rate is for '
        f'{base} (auto_scale_lr.base_batch_size): --auto-scale-batch adapts the batch, --auto-scale-lr the rate '
        f'(times {total / base:g})'
    ]


def count_accumulated(cfg) -> None:
    """Lets mmengine's scaling of the learning rate count the accumulated steps, of which it knows nothing."""
    cfg.auto_scale_lr.base_batch_size = cfg.auto_scale_lr.base_batch_size / _accumulated(cfg)


def _shares(cfg) -> int:
    return number_of_processes(cfg.launcher) * _accumulated(cfg)


def _said(shares: int, cfg) -> str:
    times = _accumulated(cfg)
    processes = 'processes' if shares > times else 'process'
    return f'{shares // times} {processes}' + (f', accumulated {times} times' if times > 1 else '')


def _accumulated(cfg) -> int:
    return (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)
