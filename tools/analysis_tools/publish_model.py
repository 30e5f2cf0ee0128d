"""Publish a checkpoint: python tools/analysis_tools/publish_model.py IN OUT [--no-ema] [--unsafe-unpickle]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.checkpoints.checkpoint_commands import publish_main

    publish_main()
