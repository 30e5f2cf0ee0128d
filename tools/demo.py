"""Train and evaluate three small models on pictures of digits: python tools/demo.py [--work-dir DIR]"""

import argparse
import sys
from pathlib import Path

from vitplug.engine.demo import TrainingFailed, run_demo


def main() -> None:
    parser = argparse.ArgumentParser(description='Train and evaluate three small models; print a table, draw pictures.')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/demo'), help='where a new folder is made')
    parser.add_argument('--data-root', type=Path, default=Path('data/digits'), help='made where it is missing')
    args = parser.parse_args()
    try:
        run_demo(args.work_dir, args.data_root)
    except TrainingFailed as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    main()
