"""Predict on images, folders and videos: python tools/predict.py CONFIG CHECKPOINT PATH... --out DIR [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('predict', sys.argv[1:]))
