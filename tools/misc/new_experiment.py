"""Write a config for your own data: python tools/misc/new_experiment.py --task T --data DIR --base CONFIG --out FILE"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.runs.new_experiment import main

    main()
