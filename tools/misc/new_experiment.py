"""Write a config for your own data: python tools/misc/new_experiment.py --task T --data DIR --base CONFIG --out FILE"""

from vitplug.engine.new_experiment import main

if __name__ == '__main__':
    main()
