"""Predict images, folders and videos: python tools/predict.py CONFIG CHECKPOINT PATH... --out DIR [...]"""

import sys

from vitplug.engine.prediction.cli import main

if __name__ == '__main__':
    sys.exit(main())
