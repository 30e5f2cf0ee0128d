# Twice the learning rate.
# python tools/ablate.py docs/evidence/cb/high_rate.py --out work_dirs/evidence/cb/high_rate
base = '../../../configs/fashion/vit-mini-p4_1xb64-1500i_fashion-28x28.py'
plugs = ['none', 'cb']
seeds = [10, 11, 12]
metric = 'accuracy/top1'
options = {'optim_wrapper.optimizer.lr': 3e-3}
