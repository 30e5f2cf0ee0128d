# Instance segmentation of nuclei with Mask R-CNN on the Swins of cifar10_swin, each cell with its own.
# python tools/ablate.py docs/evidence/photographs/nuclei.py --out work_dirs/evidence/photographs/nuclei
base = '../../../configs/nuclei/swin-mini-p4-w4_mask-rcnn_1xb8-400i_nuclei-128x128.py'
plugs = ['none', 'cb', 'gab', 'residual', 'broad', 'refiner', 'gate', 'peg']
seeds = 5
metric = 'coco/segm_mAP'
margin = 0.5
start_from = '../cifar10_swin'
keep = 'last'
