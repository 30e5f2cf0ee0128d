"""Measure what plugs cost: python tools/analysis_tools/benchmark.py [--parts attention models ... compile]"""

from vitplug.benchmark.cli import main

if __name__ == '__main__':
    main()
