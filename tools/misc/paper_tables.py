"""Write the papers' tables from the metafiles: python tools/misc/paper_tables.py [--check | --count | --coverage]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.analysis.paper_tables import main

    main()
