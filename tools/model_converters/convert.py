"""Convert a checkpoint: python tools/model_converters/convert.py SRC DST [--to vitplug|timm] [--unsafe-unpickle]"""

from vitplug.checkpoints.cli import convert_main

if __name__ == '__main__':
    convert_main()
