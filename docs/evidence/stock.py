# Plugs added to a trained ViT of mmpretrain, each fine-tuned as long as the plain one.
# python tools/ablate.py docs/evidence/stock.py --out work_dirs/evidence/stock
base = '../../configs/fashion/vit-mini-p4_1xb64-stock-400i_fashion-28x28.py'
plugs = ['none', 'cb', 'gab', 'residual', 'broad', 'refiner']
seeds = 5
metric = 'accuracy/top1'
