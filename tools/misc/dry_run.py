"""Train two steps of a config, writing nothing: python tools/misc/dry_run.py CONFIG [--plugs PLUGS] [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('dry-run', sys.argv[1:]))
