"""Fine-tune and evaluate on GLUE: python tools/text/glue.py TASK --data DIR --model MODEL --out DIR [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('glue', sys.argv[1:]))
