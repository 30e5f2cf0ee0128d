"""Fine-tune and evaluate on GLUE: python tools/text/glue.py TASK --data DIR --model MODEL --out DIR [...]"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.text.glue import main

    sys.exit(main())
