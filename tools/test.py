"""Evaluate a checkpoint: python tools/test.py CONFIG CHECKPOINT [--out PKL] [--show-dir DIR] [...]"""

from vitplug import threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded

    from vitplug.runs.cli import test

    test()
