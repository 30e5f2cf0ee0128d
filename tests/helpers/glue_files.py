"""Tiny files in the format of GLUE. The label depends on one word: 'good', 'bad' (third class), or neither."""

import random
from pathlib import Path

WORDS = ('the', 'a', 'cat', 'dog', 'house', 'tree', 'runs', 'sees', 'eats', 'red', 'old', 'small', 'not', 'of', 'on')
#: For each task its first line, None for none; and a line of a sentence, another one, and a label.
FORMATS = {
    'CoLA': (None, 'gj04\t{label}\t\t{first}'),
    'SST-2': ('sentence\tlabel', '{first}\t{label}'),
    'MRPC': ('\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String', '{label}\t12\t34\t{first}\t{second}'),
    'STS-B': (
        'index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore',
        '7\tmain\tMSR\t2012\t0001\tnone\tnone\t{first}\t{second}\t{label}',
    ),
    'QQP': ('id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate', '1\t2\t3\t{first}\t{second}\t{label}'),
    'MNLI': (
        'index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t'
        'sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label',
        '0\t1\t1n\tfiction\t( a )\t( b )\t(ROOT)\t(ROOT)\t{first}\t{second}\tneutral\t{label}',
    ),
    'QNLI': ('index\tquestion\tsentence\tlabel', '0\t{first}\t{second}\t{label}'),
    'RTE': ('index\tsentence1\tsentence2\tlabel', '0\t{first}\t{second}\t{label}'),
}
LABELS = {
    'STS-B': ('1.250', '4.800'),
    'MNLI': ('neutral', 'entailment', 'contradiction'),
    'QNLI': ('not_entailment', 'entailment'),
    'RTE': ('not_entailment', 'entailment'),
}
DEV = {'MNLI': ('dev_matched', 'dev_mismatched')}


def write_glue(folder: Path, num_train: int = 40, num_dev: int = 12) -> Path:
    """Writes all eight tasks; lines of different lengths, a quotation mark here and there."""
    draw = random.Random(0)
    for task, (head, line) in FORMATS.items():
        (folder / task).mkdir(parents=True)
        for split in ('train', *DEV.get(task, ('dev',))):
            number = num_train if split == 'train' else num_dev
            lines = [head] * (head is not None) + [_line(draw, task, line, i) for i in range(number)]
            (folder / task / f'{split}.tsv').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return folder


def _line(draw: random.Random, task: str, line: str, index: int) -> str:
    labels = LABELS.get(task, ('0', '1'))
    kind = index % len(labels)
    first, second = (draw.choices(WORDS, k=draw.randint(3, 9)) for _ in range(2))
    if kind:
        first.insert(draw.randrange(len(first)), ('good', 'bad')[kind - 1])
    if index % 5 == 0:
        first.append('"')
    return line.format(first=' '.join(first), second=' '.join(second), label=labels[kind])
