"""Text files, vocabularies and files of GLUE; all are refused before a model is built."""

from pathlib import Path

from glue_files import write_glue

from bad_inputs.making import both, write
from bad_inputs.table import rows

_GLUE = 'glue.py {} --data glue --out out --model bert-small --vocab vocab.txt'
_FIRST = 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String'


def glue(task: str = 'CoLA', split: str = 'dev', content: str | bytes | None = None):
    """Writes all of GLUE, and one file anew."""

    def make(folder: Path) -> None:
        write_glue(folder / 'glue')
        if content is not None:
            data = content.encode() if isinstance(content, str) else content
            (folder / 'glue' / task / f'{split}.tsv').write_bytes(data)

    return make


# fmt: off
ROWS = rows({
    _GLUE: {
        'unknown task of GLUE': ('MRPCC', r"TASK 'MRPCC': expected one of CoLA, .*, or all: did you mean MRPC\?"),
        'GLUE without a folder of the task': ('RTE', r'no such file: glue/RTE/train\.tsv; --data must have a fol'),
        'GLUE with a line of too few fields':
            ('CoLA', r'CoLA/dev\.tsv, line 2: 3 fields between tabs, expected 4; such lines: 1; repair them, or set',
             glue(content='gj\t1\t\ta\ngj\t1\ta\n')),
        'GLUE without a column':
            ('MRPC', r'MRPC/train\.tsv: no column #2 String in its first line, which has Quality, #1 ID, #2 ID, #1 Str',
             glue('MRPC', 'train', 'Quality\t#1 ID\t#2 ID\t#1 String\n1\t2\t3\ta\n')),
        'GLUE with a label that is no class':
            ('MNLI', r"dev_mismatched\.tsv, line 2: label '-', expected one of contradiction, entailment, neutral",
             glue('MNLI', 'dev_mismatched', 'sentence1\tsentence2\tgold_label\na\tb\t-\n')),
        'GLUE with a score out of range':
            ('STS-B', r"STS-B/dev\.tsv, line 3: label '5\.5', expected a number from 0 to 5",
             glue('STS-B', 'dev', 'sentence1\tsentence2\tscore\na\tb\t0\na\tb\t5.5\n')),
        'GLUE with a score that is no number':
            ('STS-B', r"STS-B/dev\.tsv, line 2: label 'nan', expected a number from 0 to 5",
             glue('STS-B', 'dev', 'sentence1\tsentence2\tscore\na\tb\tnan\n')),
        'GLUE without an example': ('MRPC', r'MRPC/dev\.tsv has no example', glue('MRPC', 'dev', f'{_FIRST}\n')),
        'GLUE in Latin-1':
            ('CoLA', r'CoLA/dev\.tsv is no UTF-8 text: byte 6 cannot', glue(content='gj\t1\t\té'.encode('latin-1'))),
        'GLUE with a vocabulary that is not there': ('SST-2', r'--vocab: no such file: vocab\.txt', glue()),
        'GLUE with a vocabulary of other tokens':
            ('SST-2', r'--vocab vocab\.txt lacks \[CLS\], \[SEP\], \[MASK\]: expected a vocab\.txt of BERT',
             both(glue(), write('vocab.txt', '[PAD]\n[UNK]\nthe\n'))),
        'GLUE with plugs that there are not': ("CoLA --plugs 'refner'", r"--plugs: .*refner"),
        'GLUE without seeds': ('CoLA --seeds 0', r'--seeds 0: expected a number above 0'),
    },
    'glue.py CoLA --data glue --out out --model {}': {
        'GLUE with a model that is not there':
            ('nowhere --plugs refiner', r'--model nowhere: expected bert-small, or a folder', glue()),
        'GLUE with initial weights and no vocabulary':
            ('bert-small', r'--model bert-small has initial weights and no vocabulary: name --vocab', glue()),
    },
    'pretrain.py {} --out out': {
        'pre-training without its text': ('nowhere.txt', r'TEXT nowhere\.txt: no such file, or a folder wi'),
        'pre-training with a warm-up that never ends':
            ('text.txt --steps 5 --warmup 5', r'--warmup 5: expected 0 to 4, fewer than --steps'),
        'pre-training with sequences too long': ('text.txt --length 1024', r'--length 1024: expected 8 to 512 tokens'),
        'pre-training with a vocabulary too large': ('text.txt --vocab-size 70000', r'--vocab-size 70000: exp'),
        'pre-training of a model that is not there':
            ('text.txt --model bert-smal', r'--model bert-smal: expected bert-small', write('text.txt', 'a')),
        'pre-training on a device that is not there':
            ('text.txt --device gpu', r'--device gpu: cannot be used \(.*; leave it out, or choose cpu'),
    },
})
