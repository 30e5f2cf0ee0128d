# ViTDet's Mask R-CNN on DINOv3-B/16. The whole image attends to itself, with class and storage tokens, and the backbone
# is frozen.
_base_ = 'mask-rcnn_vit-b-p16_sfp.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.FoundationTransformer',
        arch='dinov3-b',
        img_size=1024,
        out_type='featmap',
        frozen='host',
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/dinov3_vitb16_pretrain_lvd1689m-73cec8be.pth'),
    ),
)
