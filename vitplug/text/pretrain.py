"""Pre-training on masked words: the command of ``tools/text/pretrain.py``.

Every step draws its masks and its dropout from its own number, so a training that was interrupted ends with the same
weights, bit for bit on a CPU, as one that was not.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vitplug.commands import add_device, command_parser
from vitplug.files.whole import write_whole
from vitplug.plugs.text import NONE, PLUGS_HELP, label_of, parse_plugs

from .corpus import Corpus, find_files, make_batch, mask_words, read_documents
from .models import MODELS, learn_vocabulary, masked_lm, read_vocabulary
from .training import check_options, check_same, make_optimizer, one_line_errors, take_step, write_json

HELD_OUT, MOST_HELD_OUT, MOST_TOKENS, STATE = 50, 512, 65536, 'state.pt'


def main(argv: Sequence[str] | None = None) -> int:
    """Pre-trains a model.

    Returns:
        Exit status 0. A wrong setting ends in one line and 2, Ctrl-C in 75.
    """
    args = _parser().parse_args(argv)
    with one_line_errors():
        numbers = {name: getattr(args, name) for name in ('steps', 'batch', 'lr', 'save_every')}
        device = check_options(args.device, args.length, **numbers)
        if not 0 <= args.warmup < args.steps:
            raise ValueError(f'--warmup {args.warmup}: expected 0 to {args.steps - 1}, fewer than --steps')
        if not 100 <= args.vocab_size <= MOST_TOKENS:
            raise ValueError(f'--vocab-size {args.vocab_size}: expected 100 to {MOST_TOKENS} tokens')
        parse_plugs(args.plugs, '--plugs')
        files, out, args.plugs = find_files(args.text), Path(args.out), label_of(args.plugs)
        masked_lm(args.model, args.plugs, vocab_size=8)  # refuses a wrong one before anything is written
        settings = {name: value for name, value in vars(args).items() if name not in ('out', 'device', 'save_every')}
        check_same(out, STATE, settings)
        tokenizer = read_vocabulary(args.vocab or _learned(out, files, args.vocab_size))
        if len(tokenizer) > MOST_TOKENS:
            raise ValueError(f'--vocab {args.vocab}: {len(tokenizer)} tokens: expected at most {MOST_TOKENS}')
        corpus = Corpus(read_documents(files), tokenizer, args.length)
        torch.manual_seed(args.seed)
        model = masked_lm(args.model, args.plugs, len(tokenizer)).to(device)
        losses = train(model, corpus, tokenizer, args, out)
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    print(
        f'held-out loss {losses[0]["held_out"]:.3f} at step 0, {losses[-1]["held_out"]:.3f} at step {args.steps}; {out}'
    )
    return 0


def _learned(out: Path, files: Sequence[Path], size: int) -> Path:
    """A vocabulary that is learned from the text; once, as a training that goes on needs the same."""
    path = out / 'vocab.txt'
    if not (out / STATE).is_file():
        words = '\n'.join(learn_vocabulary(read_documents(files), size))
        write_whole(path, lambda part: part.write_text(words, encoding='utf-8'))
    return path


def train(model: nn.Module, corpus: Corpus, tokenizer: Any, args: argparse.Namespace, out: Path) -> list[dict]:
    """Trains from the last saved step on.

    Args:
        model: A masked language model of ELECTRA's network.
        corpus: The sequences; every 50th is held out.
        tokenizer: Has the special tokens.
        args: Options of the command.
        out: Folder of the saved state and ``losses.json``.

    Returns:
        For each saved step ``step``, ``train``, the mean loss since the entry before, and ``held_out``.

    Raises:
        ValueError: If the loss is not finite.
    """
    indices, every = torch.arange(len(corpus)), min(HELD_OUT, len(corpus))
    learned, held_out = indices[indices % every < every - 1], indices[every - 1 :: every][:MOST_HELD_OUT]
    optimizer = make_optimizer(model, args.lr)
    step, losses = _resume(model, optimizer, out / STATE)
    losses = losses or [dict(step=0, train=None, held_out=evaluate(model, corpus, held_out, tokenizer, args.batch))]
    order, since, began = _Order(learned, args.seed), [], time.monotonic()
    while step < args.steps:
        torch.manual_seed(args.seed * 2**32 + step)
        chosen = [order.at(step * args.batch + i) for i in range(args.batch)]
        loss = masked_loss(model.train(), [corpus[index] for index in chosen], tokenizer).mean()
        since.append(take_step(optimizer, loss, step, args.steps, args.warmup))
        step += 1
        if step % args.save_every == 0 or step == args.steps:
            mean, since = float(torch.stack(since).mean()), []
            if not mean < float('inf'):
                raise ValueError(f'the loss is {mean} before step {step}: set a lower --lr than {args.lr:g}')
            losses.append(
                dict(step=step, train=mean, held_out=evaluate(model, corpus, held_out, tokenizer, args.batch))
            )
            state = dict(step=step, losses=losses, model=model.state_dict(), optimizer=optimizer.state_dict())
            write_whole(out / STATE, lambda part, state=state: torch.save(state, part))
            write_json(out / 'losses.json', losses)
            seconds = time.monotonic() - began
            print(f'step {step}: loss {mean:.3f}, held-out {losses[-1]["held_out"]:.3f}, {seconds:.0f} s', flush=True)
    return losses


def _resume(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> tuple[int, list[dict]]:
    if not path.is_file():
        return 0, []
    state = torch.load(path, map_location=model.device, weights_only=True)
    model.load_state_dict(state['model'])
    optimizer.load_state_dict(state['optimizer'])
    return state['step'], state['losses']


def masked_loss(model: nn.Module, sequences: Sequence[list[int]], tokenizer: Any) -> Tensor:
    """Cross-entropy of each masked word; these alone go through the head."""
    batch = make_batch(sequences, tokenizer)
    ids, chosen = mask_words(batch['input_ids'], tokenizer)
    expected, chosen = batch['input_ids'][chosen].to(model.device), chosen.to(model.device)
    inputs = {name: value.to(model.device) for name, value in dict(batch, input_ids=ids).items()}
    tokens_MD = model.electra(**inputs).last_hidden_state[chosen]
    logits_MV = model.generator_lm_head(model.generator_predictions(tokens_MD))
    return cross_entropy(logits_MV, expected, reduction='none')


@torch.no_grad()
def evaluate(model: nn.Module, corpus: Corpus, indices: Tensor, tokenizer: Any, batch: int) -> float:
    """Mean loss of some sequences, always with the same masks."""
    model.eval()
    torch.manual_seed(0)
    parts = ([corpus[index] for index in part] for part in indices.split(batch))
    return float(torch.cat([masked_loss(model, part, tokenizer) for part in parts]).mean())


class _Order:
    """Endless order of indices: all, shuffled anew each time."""

    def __init__(self, indices: Tensor, seed: int):
        self.indices, self.seed, self.turn, self.shuffled = indices, seed, -1, indices

    def at(self, place: int) -> int:
        turn, place = divmod(place, len(self.indices))
        if turn != self.turn:
            generator = torch.Generator().manual_seed(self.seed * 2**32 + turn)
            self.turn, self.shuffled = turn, self.indices[torch.randperm(len(self.indices), generator=generator)]
        return int(self.shuffled[place])


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
    add('--vocab', metavar='FILE', help='vocab.txt of BERT (default: learned from the text)')
    add('--vocab-size', type=int, default=30522, metavar='N', help='most tokens of a learned one (default 30522)')
    add('--steps', type=int, default=1_450_000, metavar='N', help='default 1450000')
    add('--batch', type=int, default=128, metavar='N', help='sequences of a step (default 128)')
    add('--length', type=int, default=128, metavar='N', help='most tokens of a sequence (default 128)')
    add('--lr', type=float, default=5e-4, help='highest learning rate (default 5e-4)')
    add('--warmup', type=int, default=10_000, metavar='N', help='steps of the warm-up (default 10000)')
    add('--seed', type=int, default=0, help='default 0')
    add('--save-every', type=int, default=1000, metavar='N', help='steps between saved states (default 1000)')
    add_device(parser)
    return parser
