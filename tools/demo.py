"""Train and evaluate three small models on pictures of digits: python tools/demo.py [--task NAME] [--work-dir DIR]"""

from vitplug.cli import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.demo import main

    main()
