"""Evaluate a checkpoint: python tools/test.py CONFIG CHECKPOINT [--out PKL] [--show-dir DIR] [...]"""

from vitplug.engine.cli import test

if __name__ == '__main__':
    test()
