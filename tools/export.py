"""Export a trained model as one file: python tools/export.py CONFIG CHECKPOINT --out FILE [--dynamic AXES] [...]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.lab.export.export_command import main

    main()
