# ViTDet's Mask R-CNN on DINOv3-B/16. The whole image attends to itself, with class and storage tokens, and the backbone
# is frozen.
_base_ = ['mask-rcnn_vit-b-p16_sfp.py', 'dinov3-b-p16.py']
model = dict(
    backbone=dict(_base_.pop('dinov3'), _delete_=True, img_size=1024, out_type='featmap', frozen='host'),
)
