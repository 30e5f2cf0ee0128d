# ImageNet-1k classification with the host of Refined-ViT-M and Refiner as in its official code.
# Differs from convstem-vit-m-p16_8xb64-300e_in1k.py in: model.backbone.layer_cfgs.norm_cfg, model.backbone.plugs.
# python tools/train.py configs/refiner/convstem-vit-m-p16-refiner-official_8xb64-300e_in1k.py
_base_ = ['convstem-vit-m-p16_8xb64-300e_in1k.py']
model = dict(
    backbone=dict(
        # The code's norms see half the tokens, with an epsilon of 1e-6.
        layer_cfgs=dict(norm_cfg=dict(type='LN', eps=4e-6)),
        plugs=[dict(type='Refiner', scheme='official', mode='mbconv', init='default', share=1)],
    )
)
