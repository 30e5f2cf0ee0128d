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
from vitplug.files.whole import write_text
from vitplug.plugs.text import NONE, PLUGS_HELP, label_of

from .data import IGNORED, MaskedWords, content_of, cut, vocabulary_content

HELD_OUT, MOST_HELD_OUT, RECORD = 50, 512, 'made_of.json'


def main(argv: Sequence[str] | None = None) -> int:
    """Pre-trains a model, from the last checkpoint on; every 50th sequence, 512 at most, is held out."""
    args = _parser().parse_args(argv)
    import transformers  # --help works without it

    from .training import make_trainer

    folders = map(Path, args.text)
    files = [file for path in folders for file in (sorted(path.rglob('*.txt')) if path.is_dir() else [path])]
    words = Path(args.vocab).read_text('utf-8').splitlines()
    tokenizer = transformers.BertTokenizer(vocab={word: index for index, word in enumerate(words)})
    config = transformers.ElectraConfig.from_pretrained(args.model) if args.model else transformers.ElectraConfig()
    config.vocab_size = len(tokenizer)
    made_of = {name: getattr(args, name) for name in ('steps', 'batch', 'length', 'lr', 'warmup', 'seed')}
    made_of |= dict(
        plugs=label_of(args.plugs),
        model={key: value for key, value in config.to_diff_dict().items() if key != 'transformers_version'},
        vocabulary=vocabulary_content(tokenizer),
        text=content_of(*(file.read_bytes() for file in files)),
    )
    transformers.set_seed(args.seed)
    model = plug_in(transformers.ElectraForMaskedLM(config), args.plugs)
    claim(Path(args.out), made_of)
    parts = cut(files, tokenizer, args.length)
    every = min(HELD_OUT, len(parts))
    if every < 2:
        raise ValueError(f'TEXT: {len(parts)} sequences of up to {args.length} tokens; at least 2 are needed')
    trained = [part for index, part in enumerate(parts) if index % every < every - 1]
    data = dict(
        train_dataset=MaskedWords(trained, tokenizer, args.seed),
        eval_dataset=MaskedWords(parts[every - 1 :: every][:MOST_HELD_OUT], tokenizer, 0),  # always the same masks
        data_collator=transformers.DataCollatorForTokenClassification(tokenizer),
    )
    last = transformers.trainer_utils.get_last_checkpoint(args.out)
    settings = {f'{what}_strategy': 'steps' for what in ('eval', 'logging', 'save')}
    settings |= {f'{what}_steps': args.save_every for what in ('eval', 'logging', 'save')}
    settings |= dict(eval_on_start=last is None, save_total_limit=2)
    trainer = make_trainer(model, args, args.steps, args.warmup, args.seed, data, **settings)
    trainer.compute_loss = masked_loss
    trainer.train(resume_from_checkpoint=last)
    trainer.save_state()
    tokenizer.save_pretrained(args.out)
    model.save_pretrained(args.out)
    return 0


def claim(folder: Path, made_of: dict[str, Any]) -> None:
    """Notes in a new folder of what its content is made; in one that stands, compares it.

    Raises:
        ValueError: If the folder is of other content, or has files of other origin.
    """
    path = folder / RECORD
    if not folder.is_dir() or not any(folder.iterdir()):
        write_text(path, json.dumps(made_of, indent=1))
    before = json.loads(path.read_text()) if path.is_file() else {}
    if differing := [key for key in made_of if before.get(key) != made_of[key]]:
        raise ValueError(f'{folder} is made of other {", ".join(differing)}; choose another --out')


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
