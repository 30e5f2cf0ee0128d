# Segmentation of garment scenes with UPerNet on a ViT: the plugs with which the papers segment.
# python tools/ablate.py docs/evidence/segmentation.py --out work_dirs/evidence/segmentation
base = '../../configs/fashion/vit-mini-p8_upernet_1xb8-800i_garments-128x128.py'
plugs = ['none', 'cb', 'gab']
seeds = 3
metric = 'mIoU'
