# Classification of CIFAR-10 with a ViT: five plugs of the papers and two further ones.
# python tools/ablate.py docs/evidence/photographs/cifar10_vit.py --out work_dirs/evidence/photographs/cifar10_vit
base = '../../../configs/cifar10/vit-mini-p8_1xb64-1500i_cifar10-64x64.py'
plugs = ['none', 'cb', 'gab', 'residual', 'broad', 'refiner', 'gate', 'peg']
seeds = 5
metric = 'accuracy/top1'
margin = 0.3
# CamVid's cells start from these.
keep = 'last'
