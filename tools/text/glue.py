"""Fine-tune and evaluate on GLUE: python tools/text/glue.py TASK --data DIR --model MODEL --out DIR [...]"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.lab.text.glue import main

    sys.exit(main())
