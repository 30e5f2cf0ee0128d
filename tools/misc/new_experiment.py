"""Write a config for your own data: python tools/misc/new_experiment.py --task T --data DIR --base CONFIG --out FILE"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.runs.new_experiment import main

    main()
