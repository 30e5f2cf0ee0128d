"""The config that a trained model is built of."""

from collections.abc import Mapping

from mmengine.config import Config

from vitplug.config.reading import read_config
from vitplug.files.named import check_weights
from vitplug.tasks import check_scope


def model_config(path: str, checkpoint: str, option: str, settings: Mapping | None = None) -> Config:
    """A config whose model can be built, after a look for its checkpoint.

    Args:
        path: The config file.
        checkpoint: The checkpoint, which is not read.
        option: The option that names it, for errors.
        settings: Settings by their dotted names, which win over the config.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If the config is none of a model of a known task, or names files that can hold code.
    """
    cfg = read_config(path, settings)
    check_scope(cfg)
    check_weights(checkpoint, option)
    return cfg
