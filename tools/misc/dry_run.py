"""Train two steps of a config, writing nothing: python tools/misc/dry_run.py CONFIG [--plugs PLUGS] [...]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.benchmark.dry_run import main

    main()
