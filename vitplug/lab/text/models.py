"""Language models with plugs, and their vocabularies.

BERT-Small is the masked language model that ELECTRA's authors compare with (Clark et al., ICLR 2020): ELECTRA's small
network, whose embeddings are narrower than its tokens, trained on masked words. transformers has it as ElectraModel.
"""

import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from vitplug.adapters import load_plugs, plug_in
from vitplug.plugs.text import NONE

from .data import content_of, read_text

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


def library() -> Any:
    """transformers, which is told to be quiet.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        transformers = importlib.import_module('transformers')
    except ImportError as error:
        raise ImportError(
            f"this needs transformers ({error}): pip install 'transformers[torch]>=5.24,<6' where mmpretrain is not"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def read_vocabulary(path: str | Path) -> Any:
    """BERT's tokenizer, lower case, with the WordPiece vocabulary of a ``vocab.txt``."""
    if not Path(path).is_file():
        raise FileNotFoundError(f'--vocab: no such file: {path}')
    words = read_text(Path(path)).splitlines()
    if lacking := [word for word in SPECIAL if word not in words]:
        raise ValueError(f'--vocab {path} lacks {", ".join(lacking)}: expected a vocab.txt of BERT, one token a line')
    return library().BertTokenizer(vocab={word: index for index, word in enumerate(words)})


def learn_vocabulary(texts: Iterable[str], size: int = 30522) -> list[str]:
    """Tokens of a WordPiece vocabulary of texts, special ones first; which of equally frequent ones is up to chance."""
    words = library().BertTokenizer().train_new_from_iterator(texts, size, show_progress=False).get_vocab()
    return [*SPECIAL, *sorted(words.keys() - {*SPECIAL})]


def config_of(model: str, **settings: Any) -> Any:
    """The config of a name of :data:`MODELS` or of a folder."""
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
    """
    config = config_of(model, vocab_size=vocab_size)
    if config.model_type != 'electra':
        raise ValueError(f'--model {model} is {config.model_type}: expected electra, the network of bert-small')
    return plug_in(library().ElectraForMaskedLM(config), plugs)


def classifier(model: str, plugs: str | None, num_outputs: int, vocab: str | None = None) -> tuple[nn.Module, Any]:
    """A model with plugs and a new head for sentences, and its tokenizer.

    Args:
        model: A folder of ``save_pretrained`` with weights and tokenizer, or a name of :data:`MODELS`.
        plugs: The plugs, as a text; None for those of the folder, or none.
        num_outputs: Outputs of the head; 1 for a number.
        vocab: The vocabulary of a model by name.

    Raises:
        ValueError: If there is no such model, it has other plugs, or lacks weights.
    """
    if (model in MODELS) == (vocab is None):
        raise ValueError(f'--model {model}: a name needs --vocab, and a trained folder has its own')
    tokenizer = None if vocab is None else read_vocabulary(vocab)
    config = config_of(model, num_labels=num_outputs)
    used, kind = getattr(config, 'plugs', NONE), library().AutoModelForSequenceClassification
    if plugs is not None and used not in (NONE, plugs):
        raise ValueError(f'--plugs {plugs}: {model} was trained with {used}; leave --plugs out, or name another folder')
    if tokenizer is not None:
        config.vocab_size = len(tokenizer)
        return plug_in(kind.from_config(config), plugs or NONE), tokenizer
    network, loading = kind.from_pretrained(model, config=config, output_loading_info=True)
    if lacking := [key for key in loading['missing_keys'] if not re.search('classifier|pooler', key)]:
        raise ValueError(f'--model {model} lacks weights of the model, such as {lacking[0]}')
    plug_in(network, plugs or used)
    return (network if used == NONE else load_plugs(network, model)), library().AutoTokenizer.from_pretrained(model)


def vocabulary_content(tokenizer: Any) -> str:
    """The hash of a vocabulary: its tokens in their order."""
    words = tokenizer.get_vocab()
    return content_of('\n'.join(sorted(words, key=words.get)).encode())
