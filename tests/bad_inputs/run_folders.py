"""Work dirs of other trainings, or with other files in them."""

from bad_inputs.making import both, copied, cut, noted, write
from bad_inputs.table import rows

# fmt: off
ROWS = rows({
    ('train.py tiny.py --resume', 66): {
        'resume from a last checkpoint that is cut short':
            (r'epoch_2\.pth is truncated',
             both(copied('work/epoch_1.pth', 'work/epoch_2.pth'), cut('work/epoch_2.pth', 2000),
                  noted('work/epoch_2.pth'))),
    },
    'train.py {}': {
        'resume in the work dir of another training':
            ('tiny.py --resume good.pth', r'work already holds checkpoints', copied('work/epoch_1.pth')),
    },
    'test.py tiny.py good.pth {}': {
        'results into a file that exists':
            ('--out a.pkl', r'--out: a\.pkl exists and is not overwritten', write('a.pkl', 'precious')),
        'pictures into a folder with files': ('--show-dir data', r'--show-dir: data must be a new or an empty folder'),
    },
    ('train.py {}', 66): {
        'checkpoint behind an address where nobody answers':
            ('tiny.py --cfg-options load_from=http://127.0.0.1:9/a.pth',
             r'http://127\.0\.0\.1:9/a\.pth cannot be downloaded: .*refused'),
    },
})
# fmt: on
