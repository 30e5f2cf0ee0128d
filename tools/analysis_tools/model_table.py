"""Compare counts of the papers' models with reference figures: python tools/analysis_tools/model_table.py [--out MD]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.analysis.model_table import main

    main()
