"""Show what plugs and tools do with a trained ViT: python tools/pretrained_demo.py [--work-dir DIR] [--camvid DIR]"""

from vitplug.cli import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.lab.pretrained_demo import main

    main()
