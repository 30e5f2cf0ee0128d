"""Plan a training on GPUs that are not there yet: python tools/analysis_tools/plan.py CONFIG --gpu a100-40"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.planning.plan_command import main

    sys.exit(main())
