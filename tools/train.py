"""Train a model: python tools/train.py CONFIG [--work-dir DIR] [--resume] [--amp] [--cfg-options KEY=VALUE ...]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.runs.training_commands import train

    train()
