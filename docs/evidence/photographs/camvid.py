# Segmentation of CamVid with UPerNet on the ViTs of cifar10_vit, each cell with its own.
# python tools/ablate.py docs/evidence/photographs/camvid.py --out work_dirs/evidence/photographs/camvid
base = '../../../configs/camvid/vit-mini-p8_upernet_1xb8-500i_camvid-192x192.py'
plugs = ['none', 'cb', 'gab', 'residual', 'broad', 'refiner', 'gate', 'peg']
seeds = 5
metric = 'mIoU'
margin = 0.5
start_from = '../cifar10_vit'
keep = 'last'
