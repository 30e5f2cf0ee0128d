"""Pre-training on masked words: the command ``vitplug pretrain``.

BERT-Small is the masked language model that ELECTRA's authors compare with (Clark et al., ICLR 2020): ELECTRA's small
network, whose embeddings are narrower than its tokens, trained on masked words. transformers has it as ElectraModel,
with its sizes as defaults.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vitplug.adapters import plug_in
from vitplug.commands import command_parser
from vitplug.errors import one_line_errors
from vitplug.files.whole import write_whole
from vitplug.plugs.text import NONE, PLUGS_HELP, label_of, parse_plugs

from .data import IGNORED, MaskedWords, cut, find_files
from .training import content_of, library, make_trainer, vocabulary_content

HELD_OUT, MOST_HELD_OUT, RECORD = 50, 512, 'made_of.json'
SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')


@one_line_errors('interrupted; the same command goes on')
def main(argv: Sequence[str] | None = None) -> int:
    """Pre-trains a model, from the last checkpoint on; every 50th sequence, 512 at most, is held out."""
    args = _parser().parse_args(argv)
    parse_plugs(args.plugs, '--plugs')
    files, out, tokenizer = find_files(args.text), Path(args.out), read_vocabulary(args.vocab)
    config = library().ElectraConfig.from_pretrained(args.model) if args.model else library().ElectraConfig()
    config.vocab_size = len(tokenizer)
    settings = {name: getattr(args, name) for name in ('steps', 'batch', 'length', 'lr', 'warmup', 'seed')}
    claim(
        out,
        settings
        | dict(
            plugs=label_of(args.plugs),
            model={key: value for key, value in config.to_diff_dict().items() if key != 'transformers_version'},
            vocabulary=vocabulary_content(tokenizer),
            text=content_of(*(file.read_bytes() for file in files)),
        ),
    )
    parts = cut(files, tokenizer, args.length)
    every = min(HELD_OUT, len(parts))
    if every < 2:
        raise ValueError(f'TEXT: {len(parts)} sequences of up to {args.length} tokens; at least 2 are needed')
    last = library().trainer_utils.get_last_checkpoint(out)
    library().set_seed(args.seed)
    model = plug_in(library().ElectraForMaskedLM(config), args.plugs)
    trainer = make_trainer(
        model,
        MaskedWords([part for i, part in enumerate(parts) if i % every < every - 1], tokenizer, args.seed),
        library().DataCollatorForTokenClassification(tokenizer),
        args,
        args.steps,
        args.warmup,
        args.seed,
        eval_dataset=MaskedWords(parts[every - 1 :: every][:MOST_HELD_OUT], tokenizer, 0),  # always the same masks
        eval_on_start=last is None,
        save_total_limit=2,
        **{f'{what}_strategy': 'steps' for what in ('eval', 'logging', 'save')},
        **{f'{what}_steps': args.save_every for what in ('eval', 'logging', 'save')},
    )
    trainer.compute_loss = masked_loss
    trainer.train(resume_from_checkpoint=last)
    trainer.save_state()
    tokenizer.save_pretrained(out)
    model.save_pretrained(out)
    return 0


def claim(folder: Path, made_of: dict[str, Any]) -> None:
    """Notes in a new folder of what its content is made; in one that stands, compares it.

    Raises:
        ValueError: If the folder is of other content, or has files of other origin.
    """
    path = folder / RECORD
    if not folder.is_dir() or not any(folder.iterdir()):
        write_whole(path, lambda part: part.write_text(json.dumps(made_of, indent=1)))
    before = json.loads(path.read_text()) if path.is_file() else {}
    if differing := [key for key in made_of if before.get(key) != made_of[key]]:
        raise ValueError(f'{folder} is made of other {", ".join(differing)}; choose another --out')


def read_vocabulary(path: str | Path) -> Any:
    """BERT's tokenizer, lower case, with the WordPiece vocabulary of a ``vocab.txt``."""
    words = Path(path).read_text('utf-8').splitlines()
    if lacking := [word for word in SPECIAL if word not in words]:
        raise ValueError(f'--vocab {path} lacks {", ".join(lacking)}: expected a vocab.txt of BERT, one token a line')
    return library().BertTokenizer(vocab={word: index for index, word in enumerate(words)})


def masked_loss(model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **rest: Any) -> Any:
    """Mean cross-entropy of the masked words of a batch; these alone go through the head."""
    labels = inputs['labels']
    tokens = model.electra(**{name: value for name, value in inputs.items() if name != 'labels'}).last_hidden_state
    chosen = labels != IGNORED
    logits = model.generator_lm_head(model.generator_predictions(tokens[chosen]))
    loss = cross_entropy(logits, labels[chosen])
    return (loss, dict(loss=loss)) if return_outputs else loss


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        'pretrain',
        'Pre-train a language model on masked words. The defaults are those of BERT-Small; the same call '
        'goes on where it stopped.',
    )
    add = parser.add_argument
    add('text', nargs='+', metavar='TEXT', help='text files, or folders of *.txt; blank lines part documents')
    add('--out', required=True, metavar='DIR', help='folder of the model: new, or of the same call')
    add('--vocab', required=True, metavar='FILE', help='vocab.txt of BERT')
    add('--model', metavar='DIR', help='folder with a config.json of ELECTRA (default: BERT-Small)')
    add('--plugs', default=NONE, help=PLUGS_HELP)
    add('--steps', type=int, default=1_450_000, metavar='N', help='default 1450000')
    add('--batch', type=int, default=128, metavar='N', help='sequences of a step (default 128)')
    add('--length', type=int, default=128, metavar='N', help='most tokens of a sequence (default 128)')
    add('--lr', type=float, default=5e-4, help='highest learning rate (default 5e-4)')
    add('--warmup', type=int, default=10_000, metavar='N', help='steps of the warm-up (default 10000)')
    add('--seed', type=int, default=0, help='default 0')
    add('--save-every', type=int, default=1000, metavar='N', help='steps between saved states (default 1000)')
    return parser
