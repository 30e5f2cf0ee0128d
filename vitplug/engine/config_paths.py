"""Where the file of a config lies that is named as `library::folder/name.py`."""

from mmengine.config import Config

import vitplug.registry  # noqa: F401  makes `vitplug::` and `mmseg::` names that mmengine knows

from .checks import check_config_file


def config_file(path: str) -> str:
    """The file of a config.

    Args:
        path: A file, or the name of a config that came with a library, such as ``'mmdet::swin/retinanet_....py'``.

    Raises:
        FileNotFoundError: if there is none.
    """
    if '::' in path:
        try:
            return Config._get_cfg_path(path, '')[0]
        except (OSError, ImportError, AssertionError, ValueError) as error:
            raise FileNotFoundError(f'no such config: {path} ({error})') from error
    check_config_file(path)
    return path
