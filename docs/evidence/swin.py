# Classification of Fashion-MNIST with a Swin Transformer: all plugs.
# python tools/ablate.py docs/evidence/swin.py --out work_dirs/evidence/swin
base = '../../configs/fashion/swin-mini-p2-w7_1xb64-1000i_fashion-28x28.py'
plugs = ['none', 'cb', 'gab', 'residual', 'broad', 'refiner']
seeds = 5
metric = 'accuracy/top1'
