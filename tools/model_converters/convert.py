"""Convert a checkpoint: python tools/model_converters/convert.py SRC DST [--to vitplug|timm] [--unsafe-unpickle]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.checkpoints.checkpoint_commands import convert_main

    convert_main()
