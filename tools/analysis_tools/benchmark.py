"""Measure the cost of plugs: python tools/analysis_tools/benchmark.py [--parts time overhead] [...]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.lab.bench import main

    raise SystemExit(main())
