"""Count the papers' models beside reference figures: python tools/analysis_tools/model_table.py [--out MD]"""

from vitplug.analysis.model_table import main

if __name__ == '__main__':
    main()
