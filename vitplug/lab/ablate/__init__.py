"""Ablations: a grid is configs, a cell is ``vitplug train CELL --resume``, the table is paired by seed.

- ``grid``      base config, plugs, axes and seeds, and the variants that they make
- ``cells``     one training in a folder that the content of its config and data names, and what it has logged
- ``engines``   trainings here, several at a time, or on a Slurm cluster by submitit
- ``report``    means, paired differences and verdicts, as tables; ``pictures``: forest plot and learning curves
"""
