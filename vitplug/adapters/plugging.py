"""Plugs into a model that vitplug does not own, and out of it."""

import copy
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.attention.intermediates import Reduce
from vitplug.hosting import PluggedModel, plugs_text
from vitplug.plugs.plug_set import is_plug

from .blocks import Plugged, PluggedBlock, PluggedStage, describe_block, plugged_class
from .host import AdaptedModel
from .maps import ListMap, ModelMap, find, known_models, map_of, map_of_part
from .walk import PluggedBlocks, note_grid

# Keys of the weights in a checkpoint. Averaged weights come first: timm and DeiT evaluate them.
# mmengine's `state_dict` already has the averaged weights.
WEIGHT_KEYS = ('state_dict_ema', 'model_ema', 'state_dict', 'model', 'ema', 'module', 'model_state_dict', 'model_state')


def plug_in(model: nn.Module, plugs: str | Sequence) -> nn.Module:
    """Gives a model of timm, Hugging Face or your own plugs, in place.

    The model keeps its weights, their names and its methods; those of the plugs are added, as ``blocks.3.plugs...`` and
    ``plugs...`` beside the blocks' list. Without plugs, and with plugs at an identity start, the model computes what it
    did before::

        model = vitplug.plug_in(timm.create_model('deit_small_patch16_224'), 'gab+residual')
        print(model.plug_summary)

    Args:
        model: The model, or one that holds exactly one of a known class. Other classes are made known by
            :func:`vitplug.adapters.register`.
        plugs: A text such as ``'gab+residual(alpha=0.25)'``, or a list of texts, dicts with a ``type``, and plugs.

    Returns:
        The same model, with ``plug_summary``: which plugs, on which blocks, after the name of the part that takes
        them, such as ``vision_model`` of Hugging Face's ``CLIPModel``, whose text tower takes none.

    Raises:
        ValueError: If the model has plugs, has no map of names, or lacks what a plug needs.
    """
    place, inner, names = _inner(model)
    if isinstance(find(inner, names.blocks), PluggedBlocks):
        raise ValueError(f'plug_in: the model has plugs ({inner.plug_summary}); call vitplug.unplug(model) first')
    _give_classes(inner, names)
    try:
        host = AdaptedModel(inner, names, plugs)
    except Exception:
        _take_classes(inner)
        raise
    stock = find(inner, names.blocks)
    listed = PluggedBlocks(dict(stock.named_children()), host)
    listed.training = stock.training  # not `train()`: blocks keep their own modes
    _set(inner, names.blocks, listed)
    inner.plugs = host.plugs
    # In the dict: the host holds the model, so it is no part of it. The stock list is kept for `unplug`.
    inner.__dict__['plug_host'], inner.__dict__['stock_blocks'] = host, stock
    if names.patch is not None:
        find(inner, names.patch).register_forward_hook(note_grid)
    for part in (inner, *host.plugged_blocks()):  # where the part is, in its precision and mode
        like = next(p for p in part.parameters() if p.is_floating_point())
        part.plugs.to(device=like.device, dtype=like.dtype).train(part.training)
    model.plug_summary = f'{place}: {host.plug_summary}' if place else host.plug_summary
    inner.plug_summary = host.plug_summary
    host.sections()  # of the new list, before anything is compiled
    _note_in_config(model, inner, plugs)
    return model


def unplug(model: nn.Module) -> nn.Module:
    """Undoes :func:`plug_in`, in place: the model's own modules with their present weights, and nothing of the plugs.

    Returns:
        The same model.

    Raises:
        ValueError: If it has none.
    """
    for host in _hosts(model).values():
        if not isinstance(host, AdaptedModel):
            raise ValueError(f'unplug: {type(host).__name__} has its plugs from the start: build it without them')
        inner, names = host.model, host.names
        for block in host.plugged_blocks():
            del block.plugs
        stock, present = inner.__dict__.pop('stock_blocks'), find(inner, names.blocks)
        stock._modules, stock.training = present._modules, present.training
        _set(inner, names.blocks, stock)
        _take_classes(inner)
        del inner.plugs, inner.__dict__['plug_host']
        if names.patch is not None:
            hooks = find(inner, names.patch)._forward_hooks
            for key in [key for key, hook in hooks.items() if hook is note_grid]:
                del hooks[key]
        inner.__dict__.pop('plug_summary', None)
        config = getattr(inner, 'config', None)
        if hasattr(config, 'plugs'):
            del config.plugs
    model.__dict__.pop('plug_summary', None)
    return model


def host_of(model: nn.Module) -> PluggedModel:
    """The model with plugs as the analyses of vitplug take it; a backbone of vitplug is one itself.

    Raises:
        ValueError: If the model has no plugs, or several parts with plugs.
    """
    hosts = _hosts(model)
    if len(hosts) > 1:
        raise ValueError(f'{type(model).__name__} has several parts with plugs: give one of {", ".join(hosts)}')
    [host] = hosts.values()
    return host


def _hosts(model: nn.Module) -> dict[str, PluggedModel]:
    """The parts of a model that have plugs, by name; ``''`` is the model itself. A backbone of vitplug is one."""
    named = {module.__dict__.get('plug_host', module): name for name, module in model.named_modules()}
    hosts = {name: part for part, name in named.items() if isinstance(part, PluggedModel)}
    if not hosts:
        raise ValueError(f'{type(model).__name__} has no plugs; call vitplug.plug_in(model, plugs) first')
    return hosts


def intermediates(
    model: nn.Module,
    inputs: Tensor | Mapping[str, Any],
    names: Iterable[str] = ('probs',),
    layers: str | Sequence[int] = 'all',
    reduce: Reduce | None = None,
) -> tuple[Any, dict[str, dict[int, Any]]]:
    """The model's output, and intermediates by name and block, also where attention is fused.

    Args:
        model: A model with plugs; ``plug_in(model, [])`` will do. One that is compiled runs as if it were not.
        inputs: Its input, or its inputs by name.
        names: Names of :data:`vitplug.attention.intermediates.NAMES`, such as ``'probs'`` ``(B, W, H, Nq, Nk)``.
        layers: Block indices through all stages, or ``'all'``.
        reduce: Called as ``reduce(name, tensor, site)``; its result is kept in place of the tensor.

    Returns:
        What the model returns, and ``{name: {block index: tensor}}``. Where several parts of the model have plugs,
        names begin with the part's, such as ``'encoder.probs'``.

    Raises:
        ValueError: If the model has no plugs, or a name or a layer is unknown.
    """
    hosts, names = _hosts(model), names if isinstance(names, str) else tuple(names)
    recorders = {part: host.recorder(names, layers, reduce) for part, host in hosts.items()}
    with ExitStack() as stack:
        for part, recorder in recorders.items():
            stack.enter_context(hosts[part].recording(recorder))
        output = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    found = {part: recorder.collect() for part, recorder in recorders.items()}
    if len(found) == 1:
        return output, next(iter(found.values()))
    return output, {f'{part}.{name}': layers for part, by_name in found.items() for name, layers in by_name.items()}


def load_plugs(model: nn.Module, path: str | PathLike) -> nn.Module:
    """Loads the plugs' weights of a saved model, for libraries whose loading knows no plugs::

        model = ViTForImageClassification.from_pretrained(folder)
        vitplug.load_plugs(vitplug.plug_in(model, model.config.plugs), folder)

    Args:
        model: The model with the same plugs.
        path: A file of ``torch.save`` or safetensors, or a folder of ``save_pretrained``.

    Returns:
        The same model.

    Raises:
        ValueError: If the file lacks a weight of the plugs, has others, or has numbers that are not finite.
        RuntimeError: If one has another shape; names it.
    """
    parts = _hosts(model)
    saved = {_place(key, parts): value for key, value in _read(Path(path)).items() if is_plug(key)}
    own = [key for key in model.state_dict() if is_plug(key)]
    keys = {_place(key, parts): key for key in own}
    if len(keys) < len(own):
        raise ValueError(f'load_plugs: blocks are no numbers in {own[0]}: load {path} by model.load_state_dict')
    if differing := ['.'.join(place) for place in sorted(saved.keys() ^ keys.keys())]:
        raise ValueError(
            f'load_plugs: {path} lacks, or has besides, {differing}; plug in the plugs with which it was saved, not '
            f'{"; ".join(host.plug_summary for host in parts.values())}'
        )
    if broken := ['.'.join(place) for place, value in saved.items() if not value.double().isfinite().all()]:
        raise ValueError(f'load_plugs: {path} has numbers that are not finite in {broken}; use an earlier checkpoint')
    model.load_state_dict({keys[place]: value for place, value in saved.items()}, strict=False)
    return model


def _place(key: str, parts: Collection[str]) -> tuple[str, ...]:
    """Numbers of stage and block, and the name below the plugs: transformers saves blocks under older names.

    Where several parts of a model have plugs, the part's name comes first.
    """
    before, _, name = f'.{key}'.partition('.plugs.')
    owner = [part for part in parts if len(parts) > 1 and f'{before}.'.startswith(f'.{part}.')]
    return *owner, *(part for part in before.split('.') if part.isdigit()), name


def _read(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a file, or of all files of a folder of ``save_pretrained``."""
    if path.is_dir():
        return {key: value for file in path.glob('model*.safetensors') for key, value in _read(file).items()}
    if path.suffix == '.safetensors':
        from safetensors.torch import load_file

        return load_file(path)
    torch.serialization.add_safe_globals([Namespace])  # of the options in timm's files
    return weights_in(torch.load(path, map_location='cpu', weights_only=True))[0]


def weights_in(content: Mapping) -> tuple[Mapping, str]:
    """The state dict in a checkpoint, and its place in it, such as ``'state_dict'``, or ``''``."""
    place = []
    while (key := next((key for key in WEIGHT_KEYS if isinstance(content.get(key), Mapping)), None)) is not None:
        place.append(key)
        content = content[key]
    return content, '.'.join(place)


def _inner(model: nn.Module) -> tuple[str, nn.Module, ModelMap]:
    """The one part of a model that has a map: its name, itself, and the map."""
    mapped = {name: (part, found[1]) for name, part in model.named_modules() if (found := map_of(part, ModelMap))}
    if not mapped:
        raise ValueError(
            f'plug_in: {type(model).__name__} has no map of names. Known are {known_models()}; for a class of your '
            'own, vitplug.adapters.register takes one'
        )
    if len(mapped) > 1:
        raise ValueError(
            f'plug_in: {type(model).__name__} has several parts that take plugs, {list(mapped)}; give one of them, '
            f'such as plug_in(model.{list(mapped)[-1]}, plugs)'
        )
    [(place, (inner, names))] = mapped.items()
    if lacks := names.lacks(inner):
        raise ValueError(f'plug_in: {type(inner).__name__} takes no plugs: {lacks}')
    return place, inner, names


def _give_classes(inner: nn.Module, names: ModelMap) -> None:
    """Gives blocks and stages their classes, if all have maps."""
    parts, stage = list(find(inner, names.blocks)), names.stage
    for part, listed in ((inner, names.blocks), *((part, stage.blocks) for part in parts if stage is not None)):
        map_of_part(part, listed, ListMap)
    blocks = parts if stage is None else [block for part in parts for block in find(part, stage.blocks)]
    if len(set(blocks)) < len(blocks):
        raise ValueError(f'plug_in: {type(inner).__name__} takes no plugs: a block is several times in {names.blocks}')
    described = [(block, PluggedBlock, describe_block(block)) for block in blocks]
    described += [(part, PluggedStage, (stage,)) for part in parts if stage is not None]
    for module, kind, maps in described:
        module.__class__ = plugged_class(kind, type(module), maps)


def _take_classes(inner: nn.Module) -> None:
    """Undoes :func:`_give_classes`."""
    for module in inner.modules():
        if isinstance(module, Plugged):
            module.__class__ = type(module).__bases__[1]


def _set(module: nn.Module, name: str, value: nn.Module) -> None:
    parent, _, last = name.rpartition('.')
    setattr(find(module, parent), last, value)


def _note_in_config(model: nn.Module, inner: nn.Module, plugs: str | Sequence) -> None:
    """Names the plugs in a model's config, which ``save_pretrained`` saves, where they can be written as a text.

    The model gets a config of its own: others may have been built with the same one.
    """
    if not hasattr(getattr(inner, 'config', None), 'to_json_string'):
        return
    copies: dict[int, Any] = {}
    of_model = getattr(model, 'config', None)  # of a wrapper, it may be anything
    copy.deepcopy(of_model if hasattr(of_model, 'to_json_string') else inner.config, copies)
    for part in model.modules():
        if id(getattr(part, 'config', None)) in copies:
            part.config = copies[id(part.config)]
    inner.config.plugs = None
    with suppress(ValueError):  # where they cannot
        inner.config.plugs = plugs_text(plugs)
