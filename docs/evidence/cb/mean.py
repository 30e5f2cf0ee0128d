# The classifier reads the mean of the tokens in place of all of them.
# python tools/ablate.py docs/evidence/cb/mean.py --out work_dirs/evidence/cb/mean
base = 'settings/mean.py'
plugs = ['none', 'cb']
seeds = [10, 11, 12]
metric = 'accuracy/top1'
