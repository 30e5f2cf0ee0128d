"""Print a config with all that it inherits: python tools/misc/print_config.py CONFIG [--cfg-options ...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('config', sys.argv[1:]))
