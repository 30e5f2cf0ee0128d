"""Bad arguments of commands."""

from bad_inputs.folder import PIPELINE
from bad_inputs.making import backbone, both, changed, child, cut, plugs, write
from bad_inputs.table import rows

# fmt: off
ROWS = rows({
    'train.py': {
        'no config': r'arguments are required: config',
    },
    'train.py {}': {
        'unknown option': ('tiny.py --epochs 3', r'unrecognized arguments: --epochs 3'),
        'mixed precision without a GPU': ('tiny.py --amp', r'--amp.*needs an accelerator, but the device here is cpu'),
        '--auto-scale-lr without a base':
            ('tiny.py --auto-scale-lr', r'--auto-scale-lr needs auto_scale_lr\.base_batch_size'),
        '--auto-scale-batch without a base':
            ('tiny.py --auto-scale-batch', r'--auto-scale-batch needs auto_scale_lr\.base_batch_size'),
        '--auto-scale-batch that accumulated steps cannot share':
            ('tiny.py --auto-scale-batch --cfg-options auto_scale_lr.base_batch_size=3 '
             'optim_wrapper.accumulative_counts=2',
             r'--auto-scale-batch: 1 process, accumulated 2 times cannot share .*base_batch_size = 3 images'),
        'launcher that did not start the process':
            ('tiny.py --launcher slurm', r'--launcher slurm needs the environment variables SLURM'),
        'work dir with checkpoints':
            ('tiny.py', r'work already holds checkpoints.*--resume', write('work/epoch_1.pth', 'precious')),
        'work dir that is a file': ('tiny.py --work-dir good.pth', r'--work-dir: .*good\.pth is a file'),
        'resume in a folder that was moved':
            ('tiny.py --resume', r'work/last_checkpoint names a missing file, old/epoch_1\.pth',
             write('work/last_checkpoint', 'old/epoch_1.pth')),
        'residual attention on one block':
            ('child.py',
             r'ResidualAttention: layers=\[1\] changes nothing: no block of \[1\] has scores of an earlier one',
             plugs("dict(type='ResidualAttention', layers=[1])")),
        'missing config of a library': ('mmdet::swin/nothing.py', r'no such config: .*swin/nothing\.py'),
        'resume from a missing checkpoint':
            ('tiny.py --resume god.pth', r'--resume: no such checkpoint: god\.pth .*good\.pth'),
    },
    'train.py tiny.py --cfg-options {}': {
        'setting without a value': ('lr', r'KEY=VALUE pairs of plain values, but got lr'),
        'plugs given as dicts by a setting':
            ('"model.backbone.plugs=[dict(type=\'ContextBroadcast\')]"',
             r"plugs=\[dict.*'\)\]: a dict is no value.*plugs\.0\.type=ContextBroadcast, if.*plugs as a "
             r"text.*plugs='gab\+"),
        'setting below a word':
            ('default_scope.name=a', r"default_scope\.name: default_scope = 'mmpretrain' has no settings of its own"),
        'setting with a slip in its name':
            ('train_dataloder.batch_size=2', r"train_dataloder.*did you mean 'train_dataloader'"),
    },
    'get_flops.py tiny.py --cfg-options {}': {
        'setting that is no plain value':
            ("'model.backbone.out_indices=range(0,2)'",
             r'pairs of plain values, but got model\.backbone\.out_indices=range'),
        'setting with an open bracket': ("'model.backbone.out_indices=[0,(1]'", r'values, but got .*=\[0,\(1\]'),
        'setting whose value is a dict':
            ("'model.backbone.init_cfg=dict(type=Pretrained,checkpoint=a.pth)'",
             r'one by one, model\.backbone\.init_cfg\.type=Pretrained model\.backbone\.init_cfg\.checkpoint=a\.pth'),
    },
    'test.py {}': {
        'test of a missing checkpoint': ('tiny.py god.pth', r'CHECKPOINT: no such checkpoint: god\.pth .*good\.pth'),
        'pictures without the hook for them':
            ('child.py good.pth --show-dir a', r'--show-dir need default_hooks\.visualization',
             child("default_hooks = dict(_delete_=True, timer=dict(type='IterTimerHook'))")),
        'augmented test of data that loads no image':
            ('child.py good.pth --tta',
             r'--tta: no step of the test pipeline loads an image \(PackInputs\): set tta_pipeline',
             child("test_dataloader = dict(dataset=dict(pipeline=[dict(type='PackInputs')]))")),
    },
    'test.py tiny.py good.pth {}': {
        'results into a file of another kind': ('--out a.json', r'--out: a\.json must end in \.pkl'),
        'pictures of an augmented test':
            ('--tta --show-dir pictures', r'--show-dir: mmpretrain cannot draw what --tta merges'),
    },
    'predict.py tiny.py good.pth {}': {
        'prediction of no picture': ('nowhere.jpg --out a', r'no such image, .*nowhere\.jpg'),
        'prediction of a folder without pictures':
            ('empty --out a', r'empty has no image or video in it, of \.jpg',
             lambda folder: (folder / 'empty').mkdir()),
        'prediction into a folder with files': ('data/val --out data', r'--out: data must be a new or an empty folder'),
        'prediction on a device that is not there':
            ('data/val --out a --device nowhere', r'--device nowhere: cannot be used .*expected cpu'),
        'prediction with a score above 1': ('data/val --out a --score-thr 50', r'--score-thr 50\.0: expected 0 to 1'),
        'prediction without pictures in a batch':
            ('data/val --out a --batch-size 0', r'--batch-size 0: expected at least 1'),
    },
    'predict.py tiny.py good.pth data/val --out a --exported {}': {
        'prediction with a missing file': ('a.onnx', r'--exported: no such file: a\.onnx'),
        'prediction with a checkpoint as the file':
            ('good.pth', r"--exported good\.pth: unknown suffix '\.pth'; choose from \['\.pt2', '\.onnx', '\.xml'\]"),
        'prediction with a file without its side file':
            ('a.onnx', r'--exported a\.onnx: its side file a\.onnx\.json is missing: copy it', write('a.onnx', '')),
        'prediction with a side file that is none':
            ('a.onnx', r'a\.onnx\.json: no side file of an exported model: export it with tools/export\.py',
             both(write('a.onnx', ''), write('a.onnx.json', '{}'))),
    },
    'export.py tiny.py good.pth {}': {
        'export in an unknown format':
            ('--out a.onnx --format tflite', r'--format tflite: unknown; choose from torch, onnx, openvino'),
        'export of an unknown part':
            ('--out a.onnx --part boxes', r'--part boxes: unknown; choose from scores, backbone'),
        'export with an unknown axis':
            ('--out a.onnx --dynamic depth', r'--dynamic depth: unknown; choose from batch, height, width'),
        'export under another ending': ('--out a.pt2', r'--out a\.pt2: must end in \.onnx'),
        'export over a file':
            ('--out a.onnx', r'--out: a\.onnx exists and is not overwritten: choose another name', write('a.onnx', '')),
        'export in two precisions': ('--out a.onnx --int8 --half', r'--int8 and --half exclude each other: choose one'),
        'export with small weights of another format':
            ('--out a.pt2 --format torch --int8', r'--int8: is for --format onnx, not torch: leave it out'),
    },
    ('predict.py {}', 65): {
        'prediction of a broken picture':
            ('tiny.py good.pth data/val --out a',
             r'cannot use data/val/cat/0\.png: failed to load image(.|\n)*error: 1 of 4 inputs cannot be used',
             write('data/val/cat/0.png', 'no image')),
    },
    ('predict.py {}', 66): {
        'prediction by a broken checkpoint':
            ('tiny.py bad.pth data/val --out a', r'bad\.pth is truncated or no checkpoint',
             both(changed(lambda content: None), cut('bad.pth', 1000))),
        'prediction by a model with other heads':
            ('child.py good.pth data/val --out a',
             r'good\.pth was trained with other settings .*num_heads was 2, is 4',
             backbone('arch=dict(num_heads=4)')),
    },
    'predict.py {}': {
        'prediction without a test pipeline':
            ('child.py good.pth data/val --out a', r'child\.py: no test_dataloader',
             child('test_dataloader = test_cfg = test_evaluator = None')),
    },
    'microscope.py tiny.py good.pth data/val/cat/0.png {}': {
        'report over a file':
            ('--out a.html', r'--out: a\.html exists and is not overwritten: choose another name', write('a.html', '')),
        'report with another ending': ('--out a.pdf', r'--out: a\.pdf must end in \.html'),
        'report of a broken image':
            ('--out a.html --device cpu', r'data/val/cat/0\.png: ', cut('data/val/cat/0.png', 60)),
        'report without a baseline checkpoint':
            ('--baseline tiny.py god.pth --out a.html',
             r'--baseline: no such checkpoint: god\.pth \(did you mean good\.pth\?\)'),
        'report against a baseline of another task':
            ('--baseline mask.py good.pth --out a.html',
             r'--baseline: its task is detection and that of the model classification: expected one task'),
        'report against a baseline of another image size':
            ('--baseline child.py good.pth --out a.html --device cpu --allow-changes',
             r'--baseline: .*0\.png becomes an image of 24x24 and 16x16 in the two test pipelines',
             child(f'test_dataloader = dict(dataset=dict(pipeline={PIPELINE.replace("(16, 16)", "(24, 24)")}))')),
        'report of no size': ('--max-mb inf --out a.html', r'--max-mb inf: expected a number above 0'),
        'report that cannot be so small':
            ('--max-mb 0.03 --out a.html --device cpu',
             r'--max-mb 0\.03: 0 bytes are left for maps, too few even for .*: take fewer images, or allow'),
    },
    'microscope.py tiny.py good.pth {}': {
        'report of no images': ('data/val --out a.html', r'IMAGE: data/val is a folder: name a few images in it'),
        'report of an image that is not there':
            ('data/val/cat/7.png --out a.html', r'IMAGE: no such file: data/val/cat/7\.png'),
        'report of a file that is no image': ('tiny.py --out a.html', r'IMAGE: tiny\.py is no image, of \.jpg'),
    },
    'study.py tiny.py:good.pth --out a {}': {
        'study by an unknown measure': ('--measures entropi', r'--measures entropi: there is none: did you mean ent'),
        'study for an unknown figure': ('--paper cb-figure2b', r'--paper cb-figure2b: there is none: did you mean cb-'),
        'study under an unknown condition': ('--conditions nois:3', r'--conditions nois:3: .*did you mean noise'),
        'study under a condition without its value': ('--conditions noise', r"--conditions noise: .*'sigma'"),
        "a paper's estimator of CKA without its images":
            ('--measures cka-paper-bvit --device cpu', r'it needs 1000 images of one size, there are \d+; --num sets'),
        'study of no images': ('--num 0', r'--num 0: expected at least 1'),
        'study of a folder without images':
            ('--images empty', r'--images: empty has no image in it, of \.jpg',
             lambda folder: (folder / 'empty').mkdir()),
        'study of images that are not there':
            ('--images vall', r'--images vall: no such file or folder; or name a split, '),
    },
    'study.py {}': {
        'study of a checkpoint that is not there':
            ('tiny.py:nowhere.pth --out a', r'RUN: no such checkpoint: nowhere\.pth'),
        'study of a split that the config does not have':
            ('child.py:good.pth --images val --out a', r'--images val: child\.py has no val_dataloader',
             child('val_dataloader = val_cfg = val_evaluator = None')),
        'study into a folder with files': ('tiny.py:good.pth --out data', r'--out: data holds other files, or is one'),
        'study of an unknown model of timm':
            ('timm:vit_smal_patch16_224 --images data/val --out a', r'timm has no such model; close: '),
        'study of a model of timm over a split':
            ('timm:test_vit --out a', r'--images test: timm:test_vit has no data set'),
        'study of a model of timm with weights of another':
            ('timm:test_vit:good.pth --images data/val --out a', r'timm: good\.pth does not fit the model: '),
    },
    ('study.py {}', 65): {
        'study of a broken image':
            ('tiny.py:good.pth --out a --measures token_norms --device cpu',
             r'cannot use data/val/cat/0\.png: .*failed to load image(.|\n)*error: 1 of 4 images cannot be used',
             write('data/val/cat/0.png', 'no image')),
    },
    'convert.py good.pth {}': {
        'unknown keys to convert to': ('a.pth --to keras', r"--to: invalid choice: 'keras'"),
        'conversion into a file that exists':
            ('tiny.pth', r'tiny\.pth exists and is not overwritten', write('tiny.pth', 'precious')),
        'conversion into a file of another kind': ('a.npz', r"a\.npz: unknown suffix '\.npz'; choose from"),
        'conversion into a missing folder': ('nowhere/a.pth', r'there is no folder nowhere'),
        'conversion of keys that are not there': ('a.pth --prefix nothing.', r"good\.pth: .*'?nothing\."),
    },
    'publish_model.py {}': {
        'publishing into a file that exists':
            ('good.pth a.pth', r'a\.pth exists and is not overwritten', write('a.pth', 'precious')),
        'publishing plain weights that are not there': ('good.pth a.pth --no-ema', r'good\.pth has no plain weights'),
    },
    'check_dataset.py tiny.py --splits train {}': {
        'report into a file that exists': ('--report tiny.py', r'--report: tiny\.py exists and is not overwritten'),
        'report into a missing folder': ('--report nowhere/a', r'--report: .*no folder nowhere'),
        'check with no thread': ('--workers 0', r'--workers 0: expected at least 1'),
    },
    'check_dataset.py {}': {
        'check of an unknown split': ('tiny.py --splits dev', r"--splits: invalid choice: 'dev'"),
    },
    'get_flops.py {}': {
        'images of size 0': ('tiny.py --shape 0', r'--shape 0: expected height and width'),
        'batch of 0': ('tiny.py --batch 0', r'--batch 0: expected at least 1'),
        'config of an unknown library': ('mmpose::a/b.py', r"mmpose::a/b\.py: .*'mmpose' are not known"),
        'costs of a detector with queries':
            ('mmdet::detr/detr_r50_8xb2-150e_coco.py',
             r'the DETR cannot be run on images of 800x1333: .*; supported are classifiers'),
    },
    'print_config.py': {
        'neither a config nor two to compare': r'expected a config file or --diff BASE CHILD',
    },
    'print_config.py {}': {
        'comparison with a missing config': ('--diff tiny.py tinny.py', r'no such config: tinny\.py'),
    },
    'model_table.py {}': {
        'table into another document':
            ('--out notes.md', r'notes\.md: exists and is not a table of models', write('notes.md', 'mine')),
    },
    'demo.py {}': {
        'demo of a misspelt task': ('--task detction', r"invalid choice: 'detction'"),
    },
    'make_digit_scenes.py {}': {
        'digits with fewer images than classes': ('--out digits --num-cls-train 3', r'3'),
        'digits into a folder with other files': ('--out data', r'data.* must be new, empty or'),
    },
    ('fashion_mnist.py {}', 1): {
        "Fashion-MNIST's files in another folder":
            ('--source data --out fashion',
             r'no train-images-idx3-ubyte\.gz in .*data: they are in the package dataset-fashion-mnist'),
    },
    ('cifar10.py {}', 1): {
        'CIFAR-10 without its binary files':
            ('data --out cifar10', r'data: has no batches\.meta\.txt: unpack cifar-10-binary\.tar\.gz of https://'),
    },
    ('nuclei.py {}', 1): {
        'nuclei without folders of masks':
            ('data --out nuclei', r'data: expected folders IMAGE/images and IMAGE/masks, as stage1_train has them'),
    },
    ('make_garment_scenes.py {}', 1): {
        'garments without photographs':
            ('--fashion-mnist data --out garments',
             r'no train-images-idx3-ubyte\.gz, nor train-images-idx3-ubyte, in .*data'),
    },
    'make_garment_scenes.py {}': {
        'garments with no scenes': ('--num-val 0', r'num_scenes \(val\) = 0: must be .* >= 1'),
    },
    ('pooled_splits.py {}', 1): {
        'lists of a missing data set': ('dogs nowhere', r'no such folder: .*nowhere/Images; unpack images'),
    },
    'pooled_splits.py {}': {
        'lists of an unknown data set': ('birds nowhere', r"invalid choice: 'birds'"),
    },
    'new_experiment.py --task classification --base tiny.py --out my.py --data data {}': {
        'experiment with a plug of another name':
            ('--plugs gap',
             r"--plugs: 'gap' in 'gap' is unknown: choose from none, .*, broad, .*did you mean 'gab'\?"),
        'experiment with a plug twice': ('--plugs gab,gab', r'GaussianAttentionBias.*more than once'),
        'experiment of no epochs': ('--epochs 0', r'--epochs 0: expected at least 1'),
        'experiment with a batch of all images and more':
            ('--batch-size 1000', r'--batch-size 1000: expected 1 to \d+, the number of training images'),
        'experiment at no rate': ('--lr nan', r'--lr nan: expected a number above 0'),
        'experiment with names for named classes': ('--classes a,b', r'only label maps have no names'),
        'experiment on weights that are missing':
            ('--pretrained god.pth', r'--pretrained: no such checkpoint: god\.pth \(did you mean good\.pth'),
        'experiment on a config that a library lacks':
            ('--base mmdet::swin/nothing.py', r'no such config: .*swin/nothing\.py'),
        'experiment on a config of an unknown library':
            ('--base nothing::swin/a.py',
             r"nothing::swin/a\.py: configs of 'nothing' are not known by name; known are mmpretrain, mmdet, "
             r"mmseg, vitplug"),
        'experiment on a backbone without sockets':
            ('--base mmpretrain::resnet/resnet18_8xb32_in1k.py',
             r"its backbone 'ResNet' takes no plugs, and vitplug has no host"),
        'experiment on a config of another task':
            ('--base mmdet::swin/retinanet_swin-t-p4-w7_fpn_1x_coco.py',
             r'is a config of mmdet; the task needs one of mmpretrain'),
        'experiment on a part of a config':
            ('--base vitplug::_base_/default_runtime_mmpretrain.py',
             r'has no model, train_dataloader, .*name the config of a whole training'),
        'experiment into a missing folder': ('--out no/my.py', r'there is no folder no; make it'),
        'experiment into a file of another kind': ('--out my.yml', r'my\.yml must end in \.py'),
    },
    'new_experiment.py {}': {
        'experiment into a config that exists':
            ('--task classification --base tiny.py --out my.py --data data',
             r'--out: my\.py exists and is not overwritten', write('my.py', 'precious')),
    },
})
# fmt: on
