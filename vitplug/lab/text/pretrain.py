"""Pre-training on masked words: the command ``vitplug pretrain``.

BERT-Small is the masked language model that ELECTRA's authors compare with (Clark et al., ICLR 2020): ELECTRA's small
network, whose embeddings are narrower than its tokens, trained on masked words. transformers has it as ElectraModel,
with its sizes as defaults, masks the words and trains it.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset, Subset

from vitplug.adapters import plug_in
from vitplug.commands import command_parser
from vitplug.files.folders import of_file, of_names
from vitplug.files.whole import write_text
from vitplug.plugs.text import NONE, PLUGS_HELP, label_of

HELD_OUT, MOST_HELD_OUT, RECORD = 50, 512, 'made_of.json'
NUM_SPECIAL, TWO_SEGMENTS, WEIGHT_DECAY, EPSILON = 3, 0.9, 0.01, 1e-6
MASKS = dict(mlm_probability=0.15, mask_replace_prob=0.85, random_replace_prob=0.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Pre-trains a model, from the last checkpoint on; every 50th sequence, 512 at most, is held out."""
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
    args = parser.parse_args(argv)
    import transformers  # --help works without it

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
        vocabulary=of_file(args.vocab),
        text=of_names(map(of_file, files)),
    )
    transformers.set_seed(args.seed)
    model = plug_in(transformers.ElectraForMaskedLM(config), args.plugs)
    claim(Path(args.out), made_of)
    parts = Parts(files, tokenizer, args.length)
    settings = {f'{what}_strategy': 'steps' for what in ('eval', 'logging', 'save')}
    settings |= {f'{what}_steps': args.save_every for what in ('eval', 'logging', 'save')}
    settings |= dict(save_total_limit=2, prediction_loss_only=True, logging_nan_inf_filter=False)
    trainer = transformers.Trainer(
        model,
        training_arguments(args, args.steps, args.seed, **settings),
        train_dataset=Subset(parts, [index for index in range(len(parts)) if index % HELD_OUT]),
        eval_dataset=Subset(parts, range(0, len(parts), HELD_OUT)[:MOST_HELD_OUT]),
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, **MASKS),
        optimizers=make_optimizers(model, args.lr, args.steps, args.warmup),
    )
    trainer.train(resume_from_checkpoint=transformers.trainer_utils.get_last_checkpoint(args.out))
    tokenizer.save_pretrained(args.out)
    model.save_pretrained(args.out)
    return 0


def claim(folder: Path, made_of: dict[str, Any]) -> None:
    """Notes in a folder without other files of what its content is made; else compares it.

    Raises:
        ValueError: If the folder is of other content, or has files of other origin.
    """
    path = folder / RECORD
    if all(file == path for file in folder.glob('*')):
        write_text(path, json.dumps(made_of, indent=1))
    before = json.loads(path.read_text()) if path.is_file() else {}
    if differing := [key for key in made_of if before.get(key) != made_of[key]]:
        raise ValueError(f'{folder} is made of other {", ".join(differing)}; choose another --out')


class Parts(Dataset):
    """Documents, which blank lines part, as sequences of at most ``length`` tokens; none has parts of two.

    Nine of ten sequences are in two segments, as ELECTRA has them.
    """

    def __init__(self, files: Iterable[Path], tokenizer: Any, length: int):
        self.tokenizer, self.parts = tokenizer, []
        size, kind = length - NUM_SPECIAL, np.min_scalar_type(len(tokenizer))  # a corpus is large
        for file in files:
            for text in re.split(r'\n\s*\n', file.read_text('utf-8-sig')):
                ids = np.asarray(tokenizer(text, add_special_tokens=False)['input_ids'], kind)
                self.parts += [ids[at : at + size] for at in range(0, len(ids), size)]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        words, start, end = self.parts[index].tolist(), self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        middle = len(words) // 2 if np.random.default_rng(index).random() < TWO_SEGMENTS else len(words)
        first, second = [start, *words[:middle], end], [*words[middle:], end] if words[middle:] else []
        return dict(input_ids=first + second, token_type_ids=[0] * len(first) + [1] * len(second))


# --- training, for GLUE too ---


def make_optimizers(
    model: nn.Module, lr: float, steps: int, warmup: float, layer_decay: float = 1.0
) -> tuple[AdamW, LambdaLR]:
    """AdamW with learning rates by layer, no weight decay of biases, norms and scalars of plugs; and the rates' course.

    With L blocks, the head learns at ``lr``, block i (from 0) at ``lr * layer_decay ** (L + 1 - i)``, embeddings at
    ``lr * layer_decay ** (L + 2)``, as in ELECTRA's code. A block's plugs learn at the rate of the block. All rates
    follow a linear warm-up times a linear decay to 0.
    """
    last, groups = model.config.num_hidden_layers + 2, {}
    for name, parameter in model.named_parameters():
        block = re.search(r'\.layer\.(\d+)\.', name)
        depth = int(block[1]) + 1 if block else 0 if '.embeddings' in name else last
        key = lr * layer_decay ** (last - depth), WEIGHT_DECAY if parameter.ndim > 1 else 0.0
        groups.setdefault(key, dict(params=[], lr=key[0], weight_decay=key[1]))['params'].append(parameter)
    optimizer = AdamW(list(groups.values()), eps=EPSILON)
    return optimizer, LambdaLR(optimizer, lambda step: (1 - step / steps) * min(1.0, step / max(warmup, 1.0)))


def training_arguments(args: Any, steps: int, seed: int, **settings: Any) -> Any:
    """Settings of transformers' ``Trainer``, or a ValueError if a step would have more than ``args.batch`` examples."""
    import transformers

    settings |= dict(per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch, max_steps=steps)
    settings |= dict(disable_tqdm=True, dataloader_pin_memory=torch.cuda.is_available())
    found = transformers.TrainingArguments(args.out, seed=seed, data_seed=seed, **settings)
    if found.train_batch_size * found.world_size != args.batch:
        raise ValueError('several GPUs would make the batch larger than --batch: set CUDA_VISIBLE_DEVICES=0')
    return found
