# Fine-tuning on ImageNet-1k, as BSwin's from Swin.
_base_ = ['../datasets/imagenet_bs128_224.py', '../schedules/finetune_swin_30e.py', '../default_runtime_mmpretrain.py']
