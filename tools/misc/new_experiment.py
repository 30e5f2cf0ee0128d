"""Write a config for your own data: python tools/misc/new_experiment.py --data DIR --base CONFIG --out FILE"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('new', sys.argv[1:]))
