"""Print or compare configs: python tools/misc/print_config.py CONFIG, or --diff BASE CHILD [--cfg-options ...]"""

from vitplug.analysis.cli import print_config

if __name__ == '__main__':
    print_config()
