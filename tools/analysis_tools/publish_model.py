"""Publish a checkpoint: python tools/analysis_tools/publish_model.py IN OUT [--no-ema] [--unsafe-unpickle]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.checkpoints.checkpoint_commands import publish_main

    publish_main()
