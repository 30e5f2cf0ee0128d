"""Train and evaluate three small models on pictures of digits: python tools/demo.py [--task NAME] [--work-dir DIR]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.demo import main

    main()
