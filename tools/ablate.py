"""Train a grid of plugs with seeds: python tools/ablate.py CONFIG --plugs none cb gab --seeds 5 [--out DIR] [...]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.lab.ablate.command import main

    raise SystemExit(main())
