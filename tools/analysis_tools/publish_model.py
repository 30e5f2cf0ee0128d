"""Publish a checkpoint: python tools/analysis_tools/publish_model.py IN OUT [--no-ema] [--unsafe-unpickle]"""

from vitplug.checkpoints.cli import publish_main

if __name__ == '__main__':
    publish_main()
