"""Publish a checkpoint: python tools/analysis_tools/publish_model.py IN OUT [--no-ema] [--unsafe-unpickle]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('publish', sys.argv[1:]))
