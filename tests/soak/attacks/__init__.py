"""Random damage to the inputs of every tool, and what may come of it.

`trials` has the vocabulary, `sandbox` the sound inputs, `processes` runs tools with limits and faults, `judging` says
what came of a trial. The other modules hold the attacks, small functions in one registry.
"""
