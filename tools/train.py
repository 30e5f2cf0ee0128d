"""Train a model: python tools/train.py CONFIG [--work-dir DIR] [--resume] [--amp] [--cfg-options KEY=VALUE ...]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.runs.training_commands import train

    train()
