"""Pre-training on masked words: the command ``vitplug pretrain``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vitplug.commands import command_parser
from vitplug.files.whole import write_whole
from vitplug.plugs.text import NONE, PLUGS_HELP, label_of, parse_plugs

from .data import IGNORED, MaskedWords, content_of, cut, find_files, read_documents, read_text
from .models import MODELS, config_of, learn_vocabulary, library, masked_lm, read_vocabulary
from .training import check_numbers, claim, make_trainer, one_line_errors

HELD_OUT, MOST_HELD_OUT, VOCAB = 50, 512, 'vocab.txt'


def main(argv: Sequence[str] | None = None) -> int:
    """Pre-trains a model.

    Returns:
        Exit status 0. A wrong setting ends in one line and 2, Ctrl-C in 75.
    """
    args = _parser().parse_args(argv)
    with one_line_errors():
        check_numbers(args, 'steps', 'batch', 'lr', 'save_every')
        if not 0 <= args.warmup < args.steps:
            raise ValueError(f'--warmup {args.warmup}: expected 0 to {args.steps - 1}, fewer than --steps')
        parse_plugs(args.plugs, '--plugs')
        files, out, args.plugs = find_files(args.text), Path(args.out), label_of(args.plugs)
        masked_lm(args.model, args.plugs, vocab_size=8)  # refuses a wrong one before anything is written
        words, sizes = _vocabulary(args, files), config_of(args.model).to_diff_dict()
        made_of = {name: getattr(args, name) for name in ('plugs', 'steps', 'batch', 'length', 'lr', 'warmup', 'seed')}
        made_of |= dict(
            model={key: value for key, value in sizes.items() if key != 'transformers_version'},
            vocabulary=content_of('\n'.join(words).encode()),
            text=content_of(*(file.read_bytes() for file in files)),
        )
        claim(out, made_of)
        train(args, files, out, words)
    return 0


def _vocabulary(args: argparse.Namespace, files: Sequence[Path]) -> list[str]:
    """The tokens of ``--vocab``, of a training that goes on, or learned from the text, in that order."""
    path = Path(args.vocab or Path(args.out, VOCAB))
    if not args.vocab and not path.is_file():
        return learn_vocabulary(read_documents(files))
    read_vocabulary(path)  # refuses what is none
    return read_text(path).splitlines()


def train(args: argparse.Namespace, files: Sequence[Path], out: Path, words: Sequence[str]) -> None:
    """Trains from the last whole checkpoint on; every 50th sequence, 512 at most, is held out.

    Args:
        args: Options of the command.
        files: The text.
        out: Folder of checkpoints, model, vocabulary and ``trainer_state.json``, which has the losses.
        words: The vocabulary.

    Raises:
        ValueError: If the loss is not finite.
    """
    write_whole(out / VOCAB, lambda part: part.write_text('\n'.join(words), encoding='utf-8'))
    tokenizer, transformers = read_vocabulary(out / VOCAB), library()
    parts = cut(read_documents(files), tokenizer, args.length)
    if len(parts) < 2:
        raise ValueError(f'TEXT: {len(parts)} sequences of up to {args.length} tokens; at least 2 are needed')
    every = min(HELD_OUT, len(parts))
    learned = MaskedWords([part for i, part in enumerate(parts) if i % every < every - 1], tokenizer, args.seed)
    held_out = MaskedWords(parts[every - 1 :: every][:MOST_HELD_OUT], tokenizer, 0)  # always with the same masks
    # Trainer writes the state of a checkpoint last.
    saved = [path.parent for path in out.glob('checkpoint-*/trainer_state.json')]
    last = max(saved, key=lambda path: int(path.name.rpartition('-')[2]), default=None)
    transformers.set_seed(args.seed)
    model = masked_lm(args.model, args.plugs, len(tokenizer))
    trainer = make_trainer(
        model,
        learned,
        transformers.DataCollatorForTokenClassification(tokenizer),
        args,
        args.steps,
        args.warmup,
        args.seed,
        eval_dataset=held_out,
        eval_on_start=last is None,
        save_total_limit=2,
        **{f'{what}_strategy': 'steps' for what in ('eval', 'logging', 'save')},
        **{f'{what}_steps': args.save_every for what in ('eval', 'logging', 'save')},
    )
    trainer.compute_loss = masked_loss
    trainer.train(resume_from_checkpoint=last and str(last))
    trainer.save_state()
    tokenizer.save_pretrained(out)
    model.save_pretrained(out)


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
    add('--model', default='bert-small', help=f'{", ".join(MODELS)}, or a folder with a config.json of ELECTRA')
    add('--plugs', default=NONE, help=PLUGS_HELP)
    add('--vocab', metavar='FILE', help='vocab.txt of BERT (default: 30522 tokens learned from the text)')
    add('--steps', type=int, default=1_450_000, metavar='N', help='default 1450000')
    add('--batch', type=int, default=128, metavar='N', help='sequences of a step (default 128)')
    add('--length', type=int, default=128, metavar='N', help='most tokens of a sequence (default 128)')
    add('--lr', type=float, default=5e-4, help='highest learning rate (default 5e-4)')
    add('--warmup', type=int, default=10_000, metavar='N', help='steps of the warm-up (default 10000)')
    add('--seed', type=int, default=0, help='default 0')
    add('--save-every', type=int, default=1000, metavar='N', help='steps between saved states (default 1000)')
    return parser
