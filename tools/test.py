"""Evaluate a checkpoint: python tools/test.py CONFIG CHECKPOINT [--out PKL] [--show-dir DIR] [...]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.runs.training_commands import test

    test()
