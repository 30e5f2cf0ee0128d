"""Language models with plugs, and their vocabularies.

BERT-Small is the masked language model that ELECTRA's authors compare with (Clark et al., ICLR 2020): ELECTRA's small
network, whose embeddings are narrower than its tokens, trained on masked words. transformers has it as ElectraModel.
"""

import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from vitplug.adapters import load_plugs, plug_in
from vitplug.plugs.text import NONE

#: Sizes by name. Source: ``bert_small`` and ``model_size='small'`` of https://github.com/google-research/electra.
MODELS = {
    'bert-small': dict(
        embedding_size=128,
        hidden_size=256,
        num_hidden_layers=12,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=512,
    )
}
SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')


def library() -> ModuleType:
    """transformers, which is told to be quiet.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        transformers = importlib.import_module('transformers')
    except ImportError as error:
        raise ImportError(
            f"this needs transformers ({error}): pip install 'transformers>=5.24,<6' where mmpretrain is not"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def read_vocabulary(path: str | Path) -> Any:
    """BERT's tokenizer, lower case, with the WordPiece vocabulary of a ``vocab.txt``.

    Raises:
        ValueError: If it lacks a special token.
        FileNotFoundError: If there is no such file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f'--vocab: no such file: {path}')
    words = Path(path).read_text(encoding='utf-8').splitlines()
    lacking = [word for word in SPECIAL if word not in words]
    if lacking:
        raise ValueError(f'--vocab {path} lacks {", ".join(lacking)}: expected a vocab.txt of BERT, one token a line')
    return library().BertTokenizer(vocab={word: index for index, word in enumerate(words)})


def learn_vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """Tokens of a WordPiece vocabulary of texts, special ones first; tokenizers gives the others in a random order."""
    words = library().BertTokenizer().train_new_from_iterator(texts, size, show_progress=False).get_vocab()
    return [*SPECIAL, *sorted(words.keys() - {*SPECIAL})]


def _config(model: str, **settings: Any) -> Any:
    """The config of a name or a folder.

    Raises:
        ValueError: If there is none.
    """
    if model in MODELS:
        return library().ElectraConfig(**MODELS[model], **settings)
    if not Path(model, 'config.json').is_file():
        raise ValueError(f'--model {model}: expected {" or ".join(MODELS)}, or a folder with a config.json')
    return library().AutoConfig.from_pretrained(model, **settings)


def masked_lm(model: str, plugs: str, vocab_size: int) -> nn.Module:
    """A model for masked words at initial weights, with plugs.

    Args:
        model: A name of :data:`MODELS`, or a folder with a ``config.json`` of ELECTRA's network.
        plugs: The plugs, as a text.
        vocab_size: Tokens of the vocabulary.

    Raises:
        ValueError: If there is no such model, or it does not take the plugs.
    """
    config = _config(model, vocab_size=vocab_size)
    if config.model_type != 'electra':
        raise ValueError(
            f'--model {model} is {config.model_type}: expected electra, which has the network of bert-small'
        )
    return plug_in(library().ElectraForMaskedLM(config), plugs)


def classifier(model: str, plugs: str | None, num_outputs: int, vocab: str | None) -> tuple[nn.Module, Any]:
    """A model with plugs and a new head for sentences, and its tokenizer.

    Args:
        model: A folder of ``save_pretrained`` with weights and tokenizer, or a name of :data:`MODELS`.
        plugs: The plugs, as a text; None for those of the folder, or none.
        num_outputs: Outputs of the head; 1 for a number.
        vocab: The vocabulary; None for that of the folder.

    Raises:
        ValueError: If there is no such model, it has other plugs, or it does not take them.
    """
    if model in MODELS and vocab is None:
        raise ValueError(f'--model {model} has initial weights and no vocabulary: name --vocab, or a trained folder')
    tokenizer = read_vocabulary(vocab) if vocab else None
    config = _config(model, num_labels=num_outputs)
    used, kind = getattr(config, 'plugs', NONE), library().AutoModelForSequenceClassification
    if plugs is not None and used not in (NONE, plugs):
        raise ValueError(f'--plugs {plugs}: {model} was trained with {used}; leave --plugs out, or name another folder')
    if model in MODELS:
        config.vocab_size = len(tokenizer)
        return plug_in(kind.from_config(config), plugs or NONE), tokenizer
    network, loading = kind.from_pretrained(model, config=config, output_loading_info=True)
    if lacking := [key for key in loading['missing_keys'] if not re.search('classifier|pooler', key)]:
        raise ValueError(f'--model {model} lacks weights of the model, such as {lacking[0]}')
    plug_in(network, plugs or used)
    tokenizer = tokenizer or library().AutoTokenizer.from_pretrained(model)
    return (network if used == NONE else load_plugs(network, model)), tokenizer
