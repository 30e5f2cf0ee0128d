"""Pre-train a language model on masked words: python tools/text/pretrain.py TEXT ... --out DIR [...]"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.lab.text.pretrain import main

    sys.exit(main())
