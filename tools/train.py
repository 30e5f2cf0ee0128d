"""Train a model: python tools/train.py CONFIG [--work-dir DIR] [--resume] [--amp] [--cfg-options KEY=VALUE ...]"""

from vitplug.engine.cli import train

if __name__ == '__main__':
    train()
