# ImageNet-1k classification with Refined-ViT-M, trained with token labels and MixToken.
# Differs from convstem-vit-m-p16-refiner_8xb64-300e_in1k.py in: model.type, model.backbone.out_type, model.head,
# model.train_cfg, train_pipeline, train_dataloader.
# python tools/train.py configs/refiner/convstem-vit-m-p16-refiner-token-labels_8xb64-300e_in1k.py
_base_ = 'convstem-vit-s-p16-refiner-token-labels_8xb64-300e_in1k.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=420, num_layers=32, num_heads=12, feedforward_channels=1260),
        drop_path_rate=0.1 * 32 / 12,
    ),
    head=dict(in_channels=420),
)
