"""Train a model: python tools/train.py CONFIG [--work-dir DIR] [--resume] [--amp] [--cfg-options KEY=VALUE ...]"""

from vitplug import threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded

    from vitplug.runs.cli import train

    train()
