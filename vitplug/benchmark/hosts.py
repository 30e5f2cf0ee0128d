"""Times every host beside the same model of timm and mmpretrain, and with each plug that it takes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import torch
from torch import nn

from vitplug.backbones import LVT, MlpMixer, MViT, PoolingVisionTransformer, SwinTransformerV2, T2T_ViT

from .measure import Table, Timer
from .models import MODES, PLUGS, Suite
from .processes import run_table

# Target: maximum ratio of a plain host to the faster of the other libraries' models.
TARGET = 1.02


def of_timm(name: str) -> nn.Module:
    return import_module('timm').create_model(name, num_classes=0, drop_path_rate=0.0)


def of_mmpretrain(name: str, **settings) -> nn.Module:
    return getattr(import_module('mmpretrain.models'), name)(drop_path_rate=0.0, **settings)


@dataclass(frozen=True)
class Host:
    """A host and what it is compared with.

    Args:
        build: Builds it; takes ``plugs``.
        others: Builders of the same model, by library.
        size: Side of the images in pixels.
        layers: Blocks for the plugs; the first entry that a plug is not refused on.
    """

    build: Callable[..., nn.Module]
    others: Mapping[str, Callable[[], nn.Module]]
    size: int = 224
    layers: Sequence[str | Sequence[int]] = ('all',)

    def with_plugs(self) -> dict[str, nn.Module]:
        """The host without plugs, and with each of :data:`~vitplug.benchmark.models.PLUGS` that it does not refuse."""
        models = {'plain': self.build()}
        for name, plugs in PLUGS.items():
            for layers in self.layers:
                try:
                    models[name] = self.build(plugs=[dict(plug, layers=layers) for plug in plugs])
                    break
                except ValueError:
                    continue
        return models


# mmpretrain has no Performer, so T2T-ViT is compared with a transformer in its token stage.
T2T_T_14 = dict(
    embed_dims=384,
    num_layers=14,
    t2t_cfg=dict(token_dims=64, use_performer=False),
    layer_cfgs=dict(num_heads=6, feedforward_channels=1152),
)
HOSTS = {
    'SwinV2-T': Host(
        partial(SwinTransformerV2, 'tiny', drop_path_rate=0.0),
        dict(
            timm=partial(of_timm, 'swinv2_tiny_window8_256'),
            mmpretrain=partial(of_mmpretrain, 'SwinTransformerV2', arch='tiny'),
        ),
        size=256,
    ),
    'MViTv2-T': Host(
        partial(MViT, 'tiny', drop_path_rate=0.0),
        dict(timm=partial(of_timm, 'mvitv2_tiny'), mmpretrain=partial(of_mmpretrain, 'MViT', arch='tiny')),
    ),
    'T2T-ViT_t-14': Host(
        partial(T2T_ViT, **T2T_T_14, drop_path_rate=0.0),
        dict(mmpretrain=partial(of_mmpretrain, 'T2T_ViT', **T2T_T_14)),
    ),
    'PiT-S': Host(
        partial(PoolingVisionTransformer, 'small', drop_path_rate=0.0), dict(timm=partial(of_timm, 'pit_s_224'))
    ),
    'Mixer-S/16': Host(
        partial(MlpMixer, 'small', drop_path_rate=0.0),
        dict(timm=partial(of_timm, 'mixer_s16_224'), mmpretrain=partial(of_mmpretrain, 'MlpMixer', arch='small')),
    ),
    # The blocks of the first stage have no scores.
    'LVT': Host(partial(LVT, drop_path_rate=0.0), {}, layers=('all', [2, 3, 4, 5, 6, 7])),
}


def run(timer: Timer, dtype: torch.dtype, batch: int) -> Iterator[Table]:
    """The tables of all hosts, each in its own process.

    Args:
        timer: Times them.
        dtype: float32, or the precision of autocast.
        batch: Images in a batch.
    """
    suite = Suite(timer, dtype, batch)
    jobs = [
        partial(table, suite, name, mode)
        for name, host in HOSTS.items()
        for table in ([plain] if host.others else []) + [plugged]
        for mode in MODES
    ]
    return (run_table(job, timer.device) for job in jobs)


def plain(suite: Suite, name: str, mode: str) -> Table:
    """A host without plugs beside the other libraries' models."""
    host = HOSTS[name]
    models = {'vitplug': host.build(), **{library: build() for library, build in host.others.items()}}
    shape = (suite.batch, 3, host.size, host.size)
    return suite.table(f'{name}, plain', mode, models, shape, list(host.others), {'vitplug': TARGET})


def plugged(suite: Suite, name: str, mode: str) -> Table:
    """A host with each plug beside the one without."""
    host = HOSTS[name]
    return suite.table(name, mode, host.with_plugs(), (suite.batch, 3, host.size, host.size), ['plain'], {})
