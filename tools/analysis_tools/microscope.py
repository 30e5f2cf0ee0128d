"""One HTML report of a model: python tools/analysis_tools/microscope.py CONFIG CHECKPOINT IMAGE... --out HTML"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.lab.microscope.command import main

    main()
