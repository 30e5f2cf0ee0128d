"""Ablations: a variant is a config, a cell is ``vitplug train CELL --resume``, the table is paired by seed.

- ``plan``      the variants that configs and plugs make, and the metrics that compare them
- ``lab.cells`` one training in a folder that the content of its config and data names; studies read them, too
- ``engines``   trainings here, several at a time, or on a Slurm cluster by submitit
- ``report``    means, paired differences and verdicts, as tables; ``pictures``: forest plot and learning curves
"""
