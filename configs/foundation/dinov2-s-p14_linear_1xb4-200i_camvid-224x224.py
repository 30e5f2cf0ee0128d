# Road scenes of CamVid with a linear head on a frozen DINOv2-S, trained on crops of 224 x 224.
# python tools/train.py configs/foundation/dinov2-s-p14_linear_1xb4-200i_camvid-224x224.py
_base_ = [
    '../_base_/models/linear_dinov2-s-p14.py',
    '../_base_/datasets/camvid_224.py',
    '../_base_/schedules/cosine_200i.py',
    '../_base_/default_runtime_mmseg.py',
]
