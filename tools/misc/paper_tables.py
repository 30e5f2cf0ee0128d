"""Write the papers' tables from the metafiles: python tools/misc/paper_tables.py [--check | --count]"""

from vitplug.analysis.paper_tables import main

if __name__ == '__main__':
    main()
