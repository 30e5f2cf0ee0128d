"""Text: pre-training on masked words and GLUE, for models of Hugging Face with plugs. Needs torch and transformers.

- ``vitplug.text.models``    BERT-Small, its vocabulary, plugs, learning rates by layer
- ``vitplug.text.pretrain``  pre-training, the command of ``tools/text/pretrain.py``
- ``vitplug.text.tasks``     the eight tasks of GLUE and their files
- ``vitplug.text.glue``      fine-tuning and development sets, the command of ``tools/text/glue.py``
"""
