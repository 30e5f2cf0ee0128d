"""Print or compare configs: python tools/misc/print_config.py CONFIG, or --diff BASE CHILD [--cfg-options ...]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.analysis.config_commands import print_config

    print_config()
