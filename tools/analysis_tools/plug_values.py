"""Print and plot the learned values of plugs: python tools/analysis_tools/plug_values.py CHECKPOINT [--out PNG]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.analysis.plug_values import main

    main()
