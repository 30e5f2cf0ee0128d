# Four times the iterations.
# python tools/ablate.py docs/evidence/cb/length.py --out work_dirs/evidence/cb/length
base = 'settings/length.py'
plugs = ['none', 'cb']
seeds = [10, 11, 12]
metric = 'accuracy/top1'
