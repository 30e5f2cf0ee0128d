"""Train and evaluate three small models on pictures of digits: python tools/demo.py [--task NAME] [--work-dir DIR]"""

from vitplug.engine.demo import main

if __name__ == '__main__':
    main()
