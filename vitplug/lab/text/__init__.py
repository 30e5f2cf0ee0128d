"""Pre-training on masked words and GLUE by transformers' ``Trainer``, for models with plugs; without OpenMMLab."""
