# Variants that the mechanisms need beside those of cifar10_vit: CB with learned scales, and two controls of sinks.
# python tools/ablate.py docs/evidence/photographs/controls.py --out work_dirs/evidence/photographs/controls
base = '../../../configs/cifar10/vit-mini-p8_1xb64-1500i_cifar10-64x64.py'
plugs = ['none', 'cb(scaled=True)', 'lsa', 'registers']
seeds = 3
metric = 'accuracy/top1'
margin = 0.3
# The mechanisms are measured on these.
keep = 'last'
