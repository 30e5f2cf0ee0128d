"""Train two steps of a config, writing nothing: python tools/misc/dry_run.py CONFIG [--plugs PLUGS] [...]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.benchmark.dry_run import main

    main()
