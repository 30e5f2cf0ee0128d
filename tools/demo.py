"""Train and evaluate three small models on pictures of digits: python tools/demo.py [--task NAME] [--work-dir DIR]"""

from vitplug import threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded

    from vitplug.demo import main

    main()
