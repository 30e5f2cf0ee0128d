"""Evaluate a checkpoint: python tools/test.py CONFIG CHECKPOINT [--out PKL] [--show-dir DIR] [...]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.runs.training_commands import test

    test()
