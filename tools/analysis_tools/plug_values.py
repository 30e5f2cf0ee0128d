"""Print and plot the learned values of plugs: python tools/analysis_tools/plug_values.py CHECKPOINT [--out PNG]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.analysis.plug_values import main

    main()
