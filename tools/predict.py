"""Predict on images, folders and videos: python tools/predict.py CONFIG CHECKPOINT PATH... --out DIR [...]"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.runs.prediction.predict_command import main

    sys.exit(main())
