# The variants of the screen that its reasons hang on, with fresh seeds.
# PYTHONPATH=docs/evidence/cb/settings \
# python tools/ablate.py docs/evidence/cb/confirm.py --out work_dirs/evidence/cb/confirm
base = 'settings/variants.py'
plugs = ['none', 'cb', 'Halving', 'cb(scaled=True, scale_init_value=1)', "cb(layers='upper')"]
seeds = [20, 21, 22, 23, 24]
metric = 'accuracy/top1'
