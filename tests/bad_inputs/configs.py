"""Bad configs: files, models, plugs, data, schedules, hooks."""

from bad_inputs.making import backbone, child, host, mvit, plugs, swin_v2, t2t, write
from bad_inputs.table import rows

MIXER = "type='vitplug.MlpMixer', img_size=16, patch_size=8"

# fmt: off
ROWS = rows({
    'train.py {}': {
        'config is missing': ('tinny.py', r'no such config: tinny\.py \(did you mean tiny\.py\?\)'),
        'config that is another file': ('notes.txt', r'notes\.txt is no config', write('notes.txt', 'hello')),
    },
    'train.py bad.py': {
        'syntax error': (r'bad\.py is no config \(SyntaxError', write('bad.py', 'model = dict(')),
        'name that is not defined': (r"bad\.py is no config .*'nothing'", write('bad.py', 'a = nothing')),
        'base of a missing package':
            (r'bad\.py is no config .*nopackage', write('bad.py', "_base_ = 'nopackage::vit/a.py'")),
        'import of a missing package':
            (r'Failed to import nopackage in bad\.py, line 1', write('bad.py', 'import nopackage')),
        'hooks of vitplug on a base without their line':
            (r'bad\.py is no config .*vitplug_hooks',
             write('bad.py', "_base_ = 'tiny.py'\ndefault_hooks = _base_.vitplug_hooks")),
        'no default_scope': (r'sets no default_scope: set it to one of', write('bad.py', 'a = 1')),
        'no model': (r'no `?model', write('bad.py', "default_scope = 'mmpretrain'")),
    },
    'check_dataset.py {}': {
        'config that ends the program':
            ('bad.py', r'bad\.py is no config \(SystemExit\)', write('bad.py', 'raise SystemExit(0)')),
    },
    'get_flops.py {}': {
        'base is missing': ('bad.py', r'bad\.py is no config .*nowhere\.py', write('bad.py', "_base_ = 'nowhere.py'")),
        'PiT on images smaller than a patch':
            ('child.py --shape 8', r'image size \(8, 8\) is smaller than the patch size \(16, 16\)',
             host("type='vitplug.PoolingVisionTransformer', arch='ti'")),
        'Mixer on images of another size':
            ('child.py --shape 32',
             r'images of \(32, 32\): .* resize or crop the images to \(16, 16\), or build the backbone for their '
             r'size', host(MIXER)),
    },
    'train.py child.py': {
        'custom_imports of a missing module':
            (r'child\.py is no config .*nopackage', child("custom_imports = dict(imports=['nopackage'])")),
        'hook that names a class of another module':
            (r"custom_hooks\.0\.type = 'subprocess\.Popen'",
             child("custom_hooks = [dict(type='subprocess.Popen', args=['mkdir', 'harm'])]")),
        'unknown transform':
            (r"train_dataloader\.dataset\.pipeline\.0\.type = 'Nothing' is not in the ",
             child("train_dataloader = dict(dataset=dict(pipeline=[dict(type='Nothing')]))")),
    },
    'print_config.py {}': {
        'broken JSON config': ('bad.json', r'bad\.json is no config', write('bad.json', '{"model": ')),
    },
    'train.py tiny.py --cfg-options {}': {
        'unknown hook that is switched off':
            ('default_hooks.bad_sample=None', r"no 'bad_sample' in default_hooks; did you mean 'bad_samples'"),
        'interruptions without checkpoints':
            ('default_hooks.checkpoint=None', r'InterruptionHook saves with .*, or default_hooks\.interruption = None'),
        'unknown default_scope': ('default_scope=mmnothing', r"default_scope = 'mmnothing' is unknown"),
        'model that is no dict': ('model=vit', r"model = 'vit': expected a dict"),
        'unknown model': ('model.type=Classifier', r"model\.type = 'Classifier' is not in the "),
        'plug in the place of a backbone':
            ('model.backbone.type=vitplug.ContextBroadcast',
             r"model\.backbone\.type = 'vitplug\.ContextBroadcast': a plug is no part of a model: name it in plugs"),
        'model that names a function of another module':
            ('model.type=os.system', r"model\.type = 'os\.system'.*custom_imports"),
        'model that names a function of a known module':
            ('model.type=mmengine.load', r"model\.type = 'mmengine\.load': no class of"),
        'class of another module behind a known one':
            ('model.type=mmengine.runner.checkpoint.TemporaryDirectory',
             r"model\.type = 'mmengine\.runner\.checkpoint\.TemporaryDirectory': no class of"),
        'backbone with a slip in its name':
            ('model.backbone.type=vitplug.VisionTransfomer',
             r"model\.backbone\.type = 'vitplug\.VisionTransfomer' is not .*: did you mean "
             r"'vitplug\.VisionTransformer'"),
        'strategy of mmengine in its common runner':
            ('strategy.type=DDPStrategy', r"strategy\.type = 'DDPStrategy': .* need runner_type = 'FlexibleRunner'"),
        'strategy in another runner':
            ('strategy.type=vitplug.FSDP2Strategy runner_type=FlexibleRunner',
             r"runner_type = 'FlexibleRunner': leave it out"),
        'sharded model in a wrapper':
            ('strategy.type=vitplug.FSDP2Strategy model_wrapper_cfg.type=MMDistributedDataParallel',
             r'model_wrapper_cfg: leave it out'),
        'other first weights in every process':
            ('strategy.type=vitplug.FSDP2Strategy randomness.diff_rank_seed=True',
             r'randomness\.diff_rank_seed = True: leave it out'),
        'unknown data set': ('train_dataloader.dataset.type=Nothing', r"dataset\.type = 'Nothing'"),
        'loader without a data set':
            ('train_dataloader.dataset=None', r'train_dataloader\.dataset = None: expected a dict'),
        'unknown metric': ('val_evaluator.type=Nothing', r"val_evaluator\.type = 'Nothing' is not in the "),
        'unknown optimizer':
            ('optim_wrapper.optimizer.type=Nothing', r"optim_wrapper\.optimizer = .*'Nothing'.*such as AdamW"),
        'negative learning rate':
            ('optim_wrapper.optimizer.lr=-1.0', r'optim_wrapper\.optimizer\.lr = -1\.0: expected a number from 0 to'),
        'learning rate beyond all bounds':
            ('optim_wrapper.optimizer.lr=1e38', r'optim_wrapper\.optimizer\.lr = 1e\+38: expected a number from 0 to'),
        'argument that an optimizer has not':
            ('optim_wrapper.optimizer.beta=1', r"has no 'beta' in optim_wrapper\.optimizer; there are .*momentum"),
        'argument that a loop has not': ('train_cfg.max_epoch=3', r"'max_epoch'"),
        'unknown hook':
            ('default_hooks.mine.type=Nothing',
             r"default_hooks\.mine\.type = 'Nothing' is not in the .*custom_imports"),
        'hook that is a parenthesis': ("'default_hooks.timer.type=('", r"default_hooks\.timer\.type = '\('"),
        'value out of range in a hook':
            ('default_hooks.bad_samples.max_in_a_row=0', r'max_in_a_row = 0: must be at least 1'),
        'head for another width, in a training':
            ('model.head.in_channels=9', r'error: head\.fc \(Linear\): RuntimeError'),
    },
    'get_flops.py child.py': {
        'plug that names a function of another module':
            (r"plugs\.0\.type = 'os\.mkdir'", plugs("dict(type='os.mkdir', path='harm')")),
        "Swin with mmdet's arguments":
            (r'strides=\(4, 2, 2, 2\): expected patch_size=4, then one for each further stage of depths=\[2, 2\]',
             host("type='vitplug.SwinTransformer', embed_dims=96, depths=[2, 2], num_heads=[3, 6], mlp_ratio=4")),
        'Swin V2 with windows for another number of stages':
            (r'window_size=\[4\]: expected one integer, or a list of 2, one for each stage',
             swin_v2('window_size=[4]')),
        'T2T-ViT with scores of 0': (r'qk_scale=0: expected a number above 0, or None', t2t('qk_scale=0')),
        'PiT whose pooling cannot widen its tokens':
            (r"arch: embed_dims=\[8, 12\]: expected each stage's width to be a multiple of the one before",
             host("type='vitplug.PoolingVisionTransformer', "
             'arch=dict(embed_dims=[8, 12], depths=[1, 1], num_heads=[2, 2], patch_size=8, stride=4)')),
        'PiT with a patch size of its own':
            (r"has no argument \['patch_size'\].*sizes belong into arch: arch=dict\(patch_size=8\)",
             host("type='vitplug.PoolingVisionTransformer', arch='ti', patch_size=8")),
        'PiT with an MLP of no width':
            ('mlp_ratio=0: expected a number above 0',
             host("type='vitplug.PoolingVisionTransformer', arch='ti', mlp_ratio=0")),
        'Mixer with attention':
            (r"gab takes the socket 'bias', which block 0 does not offer; it offers \['mlp_front', 'mlp_mid', "
             r"'mlp_end', 'mlp_residual', 'block_in', 'block_out'\]",
             host(f"{MIXER}, plugs=[dict(type='GaussianAttentionBias')]")),
        'Mixer with an unknown activation': (r'act_cfg=.*Nothing', host(f"{MIXER}, act_cfg=dict(type='Nothing')")),
        'Mixer with an unknown output':
            (r"out_type='cls_token': expected one of", host(f"{MIXER}, out_type='cls_token'")),
        'MViT with an even kernel':
            (r'pool_kernel=\(2, 2\): expected two odd positive integers', mvit('pool_kernel=(2, 2)')),
        'MViT with padding shown without windows':
            (r'shows_padding=True: there is none without window', mvit('shows_padding=True')),
        'a table of offsets on pooled keys':
            (r'RelPosBias: block 0 has queries on 56x56 and keys on 14x14', mvit("plugs=[dict(type='RelPosBias')]")),
        'plug without a type': (r"plugs: \{'sigma': 2\} is no plug", plugs('dict(sigma=2)')),
        'unknown plug': (r"type='Nothing' is no plug; choose from .*'Refiner'", plugs("dict(type='Nothing')")),
        'argument that a plug has not':
            (r"Refiner has no argument \['kernel'\]; it takes", plugs("dict(type='Refiner', kernel=3)")),
        'value out of range in a plug':
            (r'GaussianAttentionBias: sigma=-1: expected a number at least 0\.01',
             plugs("dict(type='GaussianAttentionBias', sigma=-1)")),
        'plug on a block that is not there':
            (r'RelPosBias: layers=\[5\]: expected different block indices from 0 to 1',
             plugs("dict(type='RelPosBias', layers=[5])")),
        'plug given twice':
            (r'RelPosBias occurs more than once for blocks 0-1; give it once',
             plugs("dict(type='RelPosBias'), dict(type='RelPosBias')")),
        'plug given twice, with one block in common':
            (r'ContextBroadcast occurs more than once for blocks 1; .*layers=\[\.\.\.\] without common blocks',
             plugs("dict(type='ContextBroadcast'), dict(type='ContextBroadcast', mode='max', layers=[1])")),
        'position bias for a block that reuses the map of an earlier one':
            (r"plugs: \['gab'\] need q and k of block 1, which has none because it reuses the map of an earlier "
             r"block", plugs("dict(type='Refiner', share=1), dict(type='GaussianAttentionBias')")),
        'position bias for a block without attention':
            (r"plugs: \['rel_pos_bias'\] change the attention branch of block 1, which has none; take the block "
             r"out of",
             backbone("layer_cfgs=[{}, dict(with_attn=False)], plugs=[dict(type='RelPosBias')]")),
        'plug on a block that lacks its branch':
            (r"plugs: \['cb'\] change the MLP branch of block 1, which has none; take the block out of their layers",
             backbone("layer_cfgs=[{}, dict(with_ffn=False)], plugs=[dict(type='ContextBroadcast')]")),
        'block without a branch':
            (r'with_attn=False and with_ffn=False leave nothing of the block',
             backbone('layer_cfgs=dict(with_attn=False, with_ffn=False)')),
    },
    'get_flops.py tiny.py --cfg-options model.backbone.{}': {
        'backbone with a slip in its name, counted':
            ('type=vitplug.SwinTransfomer',
             r"'vitplug\.SwinTransfomer' is not in .*did you mean 'vitplug\.SwinTransformer'"),
        'size of a backbone beyond all bounds':
            ('arch.num_layers=10000000000000000000000', r'arch: num_layers=10{22}: expected an integer of at most'),
        'size of a backbone without the heads': ('arch.num_heads=None', r'arch: num_heads=None: expected an integer'),
        'backbone of no blocks': ('arch.num_layers=0', r'arch: num_layers=0: expected an integer of at least 1'),
        'heads that do not divide the width': ('arch.num_heads=3', r'embed_dims=8 is no multiple of num_heads=3'),
        'argument that a backbone has not':
            ('widow_size=7', r"no 'widow_size' in model\.backbone; did you mean 'window_size'"),
        'patches of size 0': ('patch_size=0', r'patch size 0.*expected positive integers'),
        'drop rate above 1':
            ('drop_path_rate=1.5', r'drop_path_rate=1\.5: expected a number at least 0\.0 and below 1\.0'),
        'flag that is a word': ('with_cp=yes', r"with_cp='yes': expected True or False"),
        'unknown norm': ('norm_cfg.type=LNN', r"norm_cfg=\{'type': 'LNN'.*no norm"),
        'plugs that cannot be read':
            ('plugs=3', r"model\.backbone\.plugs: '3' in '3' is no plug: expected a name such as gab"),
    },
    'get_flops.py tiny.py --cfg-options {}': {
        'output of a block that is not there':
            ("'model.backbone.out_indices=[2]'", r'out_indices=\[2\]: \[2\] outside; .* 0 to 1'),
        'head for another width': ('model.head.in_channels=9', r'16x16: head\.fc \(Linear\)'),
    },
    'get_flops.py swin.py {}': {
        'Swin with heads for another number of stages':
            ("--cfg-options 'model.backbone.arch.depths=[1]'", r"arch: .*'depths': \[1\].* differ in length"),
        'Swin with a window of 0':
            ('--cfg-options model.backbone.window_size=0', r'window_size=0: expected an integer of at least 1'),
        'Swin on maps smaller than a window':
            ('--shape 24', r'feature map \(3, 3\) is smaller than the window \(4\): set pad_small_map'),
    },
})
# fmt: on
