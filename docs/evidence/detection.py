# Instance segmentation of garment scenes with Mask R-CNN on Swin: the plugs with which the papers detect.
# python tools/ablate.py docs/evidence/detection.py --out work_dirs/evidence/detection
base = '../../configs/fashion/swin-mini-p4-w4_mask-rcnn_1xb8-400i_garments-128x128.py'
plugs = ['none', 'gab', 'residual']
seeds = 3
metric = 'coco/segm_mAP'
