# Which part of Context Broadcasting costs accuracy: the halving, the mean, its scale, its place or its depth.
# PYTHONPATH=docs/evidence/cb/settings \
# python tools/ablate.py docs/evidence/cb/variants.py --out work_dirs/evidence/cb/variants
base = 'settings/variants.py'
plugs = [
    'none',
    'cb',
    'Halving',
    'cb(scaled=True, scale_init_value=1)',
    'cb(scaled=True)',
    "cb(layers='upper')",
    "cb(position='msa')",
]
seeds = [10, 11, 12]
metric = 'accuracy/top1'
