"""Bad grids of trainings."""

import json
from pathlib import Path

from bad_inputs.making import Make, both, child, host, write
from bad_inputs.table import rows


def grid(text: str, name: str = 'grid.py') -> Make:
    """Puts a grid file there that begins with the tiny classifier."""
    return write(name, f"base = 'tiny.py'\n{text}\n")


def grid_folder(**content) -> Make:
    """Puts the folder of a grid there whose `grid.json` has other entries."""
    entries = dict(base='tiny.py', metric='accuracy/top1', plugs=['none'], seeds=[0], labels=['none'], baseline='none')

    def make(folder: Path) -> None:
        (folder / 'grid').mkdir()
        (folder / 'grid/grid.json').write_text(json.dumps(entries | dict(greater_is_better=True) | content))

    return make


def trained_cell(folder: Path) -> None:
    """Puts the folder of a grid there with a cell of another config."""
    grid_folder()(folder)
    cell = folder / 'grid/cells/none_seed0_0123456789'
    cell.mkdir(parents=True)
    (cell / 'cell.json').write_text(json.dumps(dict(label='none', seed=0, hash='0123456789')))


# fmt: off
ROWS = rows({
    'ablate.py tiny.py --plugs none {}': {
        'ablation of an unknown plug':
            ('gabb --out grid',
             r"--plugs: 'gabb' in 'gabb' is unknown: choose from none, .*broad, .*did you mean 'gab'\?"),
        'ablation of plugs that cannot be read':
            ("'gab+' --out grid", r"--plugs: 'gab\+' cannot be read: expected a text such as"),
        'ablation of a plug with an unknown argument':
            ("'residual(alfa=0.25)' --out grid",
             r"--plugs: 'residual\(alfa=0\.25\)': plugs: ResidualAttention has no argument \['alfa'\]; it takes"),
        'ablation of a plug with a wrong value':
            ("'residual(alpha=2)' --out grid", r"--plugs: 'residual\(alpha=2\)': plugs: ResidualAttention: alpha"),
        'ablation of a plug with a value that is no plain one':
            ("'residual(layers=upper)' --out grid",
             r"--plugs: layers=upper in 'residual\(layers=upper\)': expected a plain value; put quotes around text"),
        'ablation of plugs that do not go together':
            ('residual+residual --out grid', r'residual\+residual: .*ResidualAttention occurs more than once'),
        'ablation with a plug named twice': ('cb cb --out grid', r'plugs: cb occurs twice'),
        'ablation with a seed named twice': ('--seeds 1,1 --out grid', r'seeds: 1 occurs'),
        'ablation with seeds that are no numbers':
            ('--seeds many --out grid', r"seeds: 'many': expected how many there are, such as 5"),
        'ablation into a folder with files': ('cb --out data', r'--out: data is no folder of a grid and not empty'),
    },
    'ablate.py child.py --plugs none cb --out grid': {
        'ablation of plugs that a host refuses':
            (r"child\.py: its backbone 'ResNet' takes no plugs: choose one of vitplug",
             host("type='ResNet', depth=18")),
        'ablation of a config without validation':
            (r'child\.py: has no validation', child('val_dataloader = val_cfg = val_evaluator = None')),
        'ablation of a config without hooks that make a training repeatable':
            (r'default_hooks\.randomness is no vitplug\.RandomnessHook', child('default_hooks = dict(_delete_=True)')),
    },
    'ablate.py tiny.py --plugs none cb --seeds 1 --out grid {}': {
        'ablation by a metric that no validation gives':
            ('--metric accuracy/top2',
             r"--metric: no validation gives 'accuracy/top2'; there are accuracy/top1, loss/cross_entropy; "
             r"did you mean 'accuracy/top1'\?"),
        'ablation against an unknown baseline':
            ('--baseline non', r"--baseline: 'non' is none of the variants none, cb; did you mean 'none'\?"),
        'ablation on no jobs': ('--jobs 0', r'--jobs 0: expected at least 1'),
        'ablation with an option of another engine':
            ('--engine ray --partition gpu',
             r'--partition gpu: not an option of --engine ray; leave it away, or choose --engine slurm'),
        'ablation with GPUs for each cell on this machine':
            ('--gpus 2', r'--gpus 2: not an option of --engine local; leave it away, or choose --engine slurm or ray'),
        'ablation on less than no GPU': ('--engine slurm --gpus -1', r'--gpus -1: expected at least 0'),
        'ablation with a time limit that is none':
            ('--engine slurm --time soon', r'--time soon: expected minutes, H:MM:SS or D-H:MM:SS, at least one minute'),
    },
    'ablate.py tiny.py --plugs none cb --seeds 1 --out grid': {
        'ablation into the folder of another grid':
            (r'--out: grid is the folder of another grid, with base other\.py: choose another one',
             grid_folder(base='other.py')),
        'ablation into the folder of a grid by another metric':
            (r'--out: grid is the folder of another grid, which compares by accuracy/top5, not accuracy/top1',
             grid_folder(metric='accuracy/top5')),
        'ablation into a folder with cells of another config':
            (r'grid/cells/none_seed0_0123456789 is of another grid: none with seed 0 had other settings there',
             trained_cell),
    },
    'ablate.py {}': {
        'ablation without the folder of a grid to report on':
            ('data --report', r'data has no grid\.json: name the folder of a grid'),
        'mechanisms without the folder of a grid':
            ('data --mechanisms', r'data has no grid\.json: name the folder of a grid'),
        'mechanisms on no image':
            ('grid --mechanisms 0', r'--mechanisms 0: expected at least 1 image', trained_cell),
        'mechanisms of a grid without finished cells':
            ('grid --mechanisms', r'--mechanisms: no finished cell of grid has one of these plugs alone',
             trained_cell),
        'ablation of a folder without a grid':
            ('data', r'data has no grid\.json: name a config, a grid file or the folder of a grid'),
        'ablation of a broken folder of a grid':
            ('grid', r'grid/grid\.json cannot be read', both(grid_folder(), write('grid/grid.json', '{'))),
        'grid file and plugs on the command line':
            ('grid.py --plugs cb --out grid', r'--plugs: grid\.py says this itself; change it there',
             grid("plugs = ['none', 'cb']")),
    },
    'ablate.py grid.py --out grid': {
        'grid file with an unknown name':
            (r"grid\.py: seed is unknown: choose from base, axes, .*; did you mean 'seeds'\?", grid('seed = 3')),
        'grid file with an axis without values':
            (r'grid\.py: axes: optim_wrapper\.optimizer\.lr has no values',
             grid("axes = {'optim_wrapper.optimizer.lr': []}")),
        'grid file with a key that the config does not have':
            (r"axes: optim_wrapper\.optimiser\.lr: .*tiny\.py has no 'optimiser' in optim_wrapper; did you mean "
             r"'optimizer'", grid("axes = {'optim_wrapper.optimiser.lr': [0.1]}")),
        'grid file with an argument that the class does not take':
            (r"axes: model\.backbone\.drop_path: .*has no 'drop_path' in model\.backbone; did you mean "
             r"'drop_path_rate'", grid("axes = {'model.backbone.drop_path': [0.1]}")),
        'grid file with a value that the model refuses':
            (r'patch_size=-8: img_size=16, patch size -8, .*expected positive integers',
             grid("axes = {'model.backbone.patch_size': [8, -8]}")),
        'grid file with two variants alike':
            (r"the variants 'num_workers=0' and 'num_workers=2' are alike \(only train_dataloader\.num_workers "
             r"differs", grid("axes = {'train_dataloader.num_workers': [0, 2]}")),
        'grid file with seeds as an axis':
            (r'axes: randomness\.seed: write seeds = \[\.\.\.\] in its place',
             grid("axes = {'randomness.seed': [0, 1]}")),
        'grid file that starts from a grid that is not there':
            (r'start_from: first has no grid\.json: train that grid first',
             grid("plugs = ['none', 'cb']\nstart_from = '../first'")),
        'grid file that starts from a list':
            (r"grid\.py: start_from = \['first'\]: expected a text", grid("start_from = ['first']")),
        'grid file that fails': (r'grid\.py is no grid \(ZeroDivisionError\)', grid('seeds = 1 / 0')),
    },
})
# fmt: on
