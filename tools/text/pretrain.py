"""Pre-train a language model on masked words: python tools/text/pretrain.py TEXT ... --out DIR [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('pretrain', sys.argv[1:]))
