"""Work dirs of other trainings, or with other files in them."""

from bad_inputs.making import both, copied, cut, linked, noted, recorded, write
from bad_inputs.table import rows

# fmt: off
ROWS = rows({
    ('train.py tiny.py --resume {}', 0): {
        'resume from a checkpoint that names a folder as its best one':
            ('bad.pth --cfg-options train_cfg.max_epochs=2 default_hooks.checkpoint.save_best=accuracy/top1',
             r"best_ckpt = 'data/train'.*left as it is", recorded(best_ckpt='data/train', best_score=-1.0)),
        'resume from a checkpoint that names a file outside as its best one':
            ('work/start.pth --cfg-options train_cfg.max_epochs=2 default_hooks.checkpoint.save_best=accuracy/top1',
             r"best_ckpt = 'good\.pth'.*left as it is",
             both(recorded(best_ckpt='good.pth', best_score=-1.0), copied('work/start.pth', source='bad.pth'))),
    },
    'train.py tiny.py --resume': {
        'resume without a note of the last checkpoint':
            (r'work/last_checkpoint is missing.*the newest good one is .*work/epoch_2\.pth: go on with --resume',
             copied('work/epoch_1.pth', 'work/epoch_2.pth')),
        'note of the last checkpoint that is no text':
            (r'work/last_checkpoint names a missing file, .*the newest good one is .*work/epoch_1\.pth',
             both(copied('work/epoch_1.pth'), write('work/last_checkpoint', b'\xff\xfe\x00'))),
    },
    ('train.py tiny.py --resume', 66): {
        'resume from a last checkpoint that is cut short':
            (r'epoch_2\.pth is truncated.*the newest good one is .*work/epoch_1\.pth: go on with --resume',
             both(copied('work/epoch_1.pth', 'work/epoch_2.pth'), cut('work/epoch_2.pth', 2000),
                  noted('work/epoch_2.pth'))),
        'resume from an only checkpoint that is cut short':
            (r'epoch_1\.pth is truncated.*no other checkpoint there can be resumed',
             both(copied('work/epoch_1.pth'), cut('work/epoch_1.pth', 2000), noted('work/epoch_1.pth'))),
    },
    'train.py {}': {
        'resume in the work dir of another training':
            ('tiny.py --resume good.pth', r'work already holds checkpoints', copied('work/epoch_1.pth')),
        'folder of checkpoints that two work dirs share':
            ('tiny.py --work-dir other/run --cfg-options default_hooks.checkpoint.out_dir=shared',
             r'shared/run already holds checkpoints', copied('shared/run/epoch_1.pth')),
    },
    'train.py tiny.py': {
        'records of bad samples behind a link': (r'work/bad_samples\.jsonl is a link', linked('bad_samples.jsonl')),
        'records of losses behind a link': (r'work/non_finite\.jsonl is a link', linked('non_finite.jsonl')),
        'lock behind a link': (r'work/\.training\.lock is a link', linked('.training.lock')),
    },
    'test.py tiny.py good.pth {}': {
        'results into a file that exists':
            ('--out a.pkl', r'--out: a\.pkl exists and is not overwritten', write('a.pkl', 'precious')),
        'pictures into a folder with files': ('--show-dir data', r'--show-dir: data must be a new or an empty folder'),
    },
    ('train.py {}', 70): {
        'training whose last steps were skipped':
            ('tiny.py --cfg-options optim_wrapper.optimizer.lr=1e30',
             r'the last 1 iterations had no finite loss or gradients'),
    },
    ('train.py {}', 66): {
        'checkpoint behind an address where nobody answers':
            ('tiny.py --cfg-options load_from=http://127.0.0.1:9/a.pth',
             r'http://127\.0\.0\.1:9/a\.pth cannot be downloaded: .*refused'),
    },
})
# fmt: on
