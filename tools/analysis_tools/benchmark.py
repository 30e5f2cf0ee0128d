"""Measure the cost of plugs: python tools/analysis_tools/benchmark.py [--parts attention models ... compile]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.benchmark.benchmark_command import main

    main()
