"""One HTML report of a model: python tools/analysis_tools/microscope.py CONFIG CHECKPOINT IMAGE... --out HTML"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.analysis.microscope.microscope_command import main

    main()
