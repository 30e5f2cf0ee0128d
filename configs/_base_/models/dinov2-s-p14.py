# A segmentor on DINOv2-S/14, at 224 x 224; its weights are those that docs/foundation.md reads out of an ONNX file.
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        size=(224, 224),
        seg_pad_val=255,
        # Without, maps would be those of images padded to whole patches, drawn on images without that padding.
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        type='vitplug.FoundationTransformer',
        arch='dinov2-s',
        img_size=224,
        out_type='featmap',
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/dinov2-s-focus.pth'),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
