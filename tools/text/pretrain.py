"""Pre-train a language model on masked words: python tools/text/pretrain.py TEXT ... --out DIR [...]"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.text.pretrain import main

    sys.exit(main())
