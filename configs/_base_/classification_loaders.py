# The loaders and the metric of classifiers.
_base_ = 'loaders.py'
train_dataloader = dict(collate_fn=dict(type='default_collate'))
val_dataloader = dict(collate_fn=dict(type='default_collate'))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
