# ImageNet-1k classification with MViTv2-T, with the weight decay of MViTv2 and of ReMViTv2's code.
# python tools/train.py configs/residual_attention/mvitv2-t_8xb256-wd005-300e_in1k.py
# Differs from mvitv2-t_8xb256-300e_in1k.py in: optim_wrapper.optimizer.weight_decay.
_base_ = 'mvitv2-t_8xb256-300e_in1k.py'
optim_wrapper = dict(optimizer=dict(weight_decay=0.05))
