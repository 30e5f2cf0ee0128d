"""Print or compare configs: python tools/misc/print_config.py CONFIG, or --diff BASE CHILD [--cfg-options ...]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.analysis.config_commands import print_config

    print_config()
