# Nuclei as label maps with UPerNet on a DINOv2-S that is fine-tuned, on crops of 224 x 224.
# python tools/train.py configs/foundation/dinov2-s-p14_upernet_1xb4-200i_nuclei-224x224.py
_base_ = [
    '../_base_/models/upernet_dinov2-s-p14.py',
    '../_base_/datasets/nuclei_maps.py',
    '../_base_/schedules/layer_decay_200i.py',
    '../_base_/default_runtime_mmseg.py',
]
model = dict(decode_head=dict(num_classes=2))
