"""Print and plot what plugs have learned: python tools/analysis_tools/plug_values.py CHECKPOINT [--out PNG]"""

from vitplug.analysis.plug_values import main

if __name__ == '__main__':
    main()
