"""Predict on images, folders and videos: python tools/predict.py CONFIG CHECKPOINT PATH... --out DIR [...]"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.runs.prediction.predict_command import main

    sys.exit(main())
