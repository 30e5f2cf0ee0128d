"""Convert a checkpoint: python tools/model_converters/convert.py SRC DST [--prefix PREFIX]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('convert', sys.argv[1:]))
