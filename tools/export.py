"""Export a trained model as one file: python tools/export.py CONFIG CHECKPOINT --out FILE [--dynamic AXES] [...]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.export.export_command import main

    main()
