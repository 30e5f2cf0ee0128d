# COCO instance segmentation with Mask R-CNN on a plain ViT-B in bfloat16, with parameters sharded over the processes
# (FSDP).
# python tools/train.py configs/vitdet/vit-b-p16-w14_mask-rcnn_16xb4-fsdp-lsj-100e_coco.py
_base_ = 'vit-b-p16-w14_mask-rcnn_16xb4-amp-lsj-100e_coco.py'
# A rule by shape would spare everything: the share of a parameter that a process holds is one-dimensional.
optim_wrapper = dict(paramwise_cfg=dict(flat_decay_mult=None, norm_decay_mult=0.0, bias_decay_mult=0.0))
runner_type = 'FlexibleRunner'
strategy = dict(
    type='FSDPStrategy',
    state_dict_cfg='full',
    model_wrapper=dict(
        type='MMFullyShardedDataParallel',
        use_orig_params=True,
        # Blocks of ViT-B have 7 million parameters.
        auto_wrap_policy=dict(type='torch.distributed.fsdp.wrap.size_based_auto_wrap_policy', min_num_params=5_000_000),
    ),
)
