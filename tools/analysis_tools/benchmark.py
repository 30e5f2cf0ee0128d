"""Measure the cost of plugs: python tools/analysis_tools/benchmark.py [--parts attention models ... compile]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.benchmark.benchmark_command import main

    main()
