# Classification of CIFAR-10 with a Swin Transformer: the same plugs.
# python tools/ablate.py docs/evidence/photographs/cifar10_swin.py --out work_dirs/evidence/photographs/cifar10_swin
base = '../../../configs/cifar10/swin-mini-p4-w4_1xb64-1000i_cifar10-64x64.py'
plugs = ['none', 'cb', 'gab', 'residual', 'broad', 'refiner', 'gate', 'peg']
seeds = 5
metric = 'accuracy/top1'
margin = 0.3
# The cells of nuclei start from these.
keep = 'last'
