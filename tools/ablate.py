"""Train a grid of plugs with seeds: python tools/ablate.py CONFIG --plugs none cb gab --seeds 5 [--out DIR] [...]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.lab.ablate.command import main

    raise SystemExit(main())
