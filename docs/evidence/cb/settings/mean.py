# The ViT of the evidence with the mean of its tokens as the classifier's input.
_base_ = '../../../../configs/fashion/vit-mini-p4_1xb64-1500i_fashion-28x28.py'
model = dict(backbone=dict(out_type='avg_featmap'), neck=dict(in_channels=96))
