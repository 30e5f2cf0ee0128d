# COCO instances as in coco_instance_ms-crop.py, four images per GPU.
_base_ = 'coco_instance_ms-crop.py'
train_dataloader = dict(batch_size=4)
