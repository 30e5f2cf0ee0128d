"""Checks of a config as a whole: the kinds of its parts."""

# Parts that mmengine takes as a dict, or as None where they are not used.
PARTS = (
    'model',
    *(f'{split}_{part}' for split in ('train', 'val', 'test') for part in ('cfg', 'dataloader')),
    'optim_wrapper',
    'default_hooks',
    'env_cfg',
    'visualizer',
    'data_help',
)


def check_parts(cfg) -> None:
    """Checks the kinds of a config's main parts.

    Raises:
        ValueError: names the part, what it is and what is expected.
    """
    for name in PARTS:
        part = cfg.get(name)
        if part is not None and not isinstance(part, dict):
            raise ValueError(f'{name} = {part!r}: expected a dict')
        if name.endswith('_dataloader') and part is not None and not isinstance(part.get('dataset'), dict):
            raise ValueError(f'{name}.dataset = {part.get("dataset")!r}: expected a dict with the type of a data set')
