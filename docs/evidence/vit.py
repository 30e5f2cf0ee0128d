# Classification of Fashion-MNIST with a ViT: all plugs and two combinations.
# python tools/ablate.py docs/evidence/vit.py --out work_dirs/evidence/vit
base = '../../configs/fashion/vit-mini-p4_1xb64-1500i_fashion-28x28.py'
plugs = ['none', 'cb', 'gab', 'residual', 'broad', 'refiner', 'cb+gab', 'gab+residual']
seeds = 5
metric = 'accuracy/top1'
