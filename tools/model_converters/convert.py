"""Convert a checkpoint: python tools/model_converters/convert.py SRC DST [--to vitplug|timm] [--unsafe-unpickle]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.checkpoints.checkpoint_commands import convert_main

    convert_main()
