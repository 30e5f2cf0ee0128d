"""Times whole models, training step and inference, against plain hosts and other libraries' models."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import nn

from vitplug.backbones import SwinTransformer, VisionTransformer

from .measure import Case, Table, Timer
from .processes import run_table

PLUGS = {
    'CB': [dict(type='ContextBroadcast')],
    'CB_S': [dict(type='ContextBroadcast', scaled=True)],
    'GAB': [dict(type='GaussianAttentionBias')],
    'Residual': [dict(type='ResidualAttention')],
    'Broad': [dict(type='BroadAttention')],
    'Refiner': [dict(type='Refiner')],
    'DLA alone': [dict(type='Refiner', expansion=0)],
}
# Target: maximum ratio to the plain host, by image size.
TARGETS = {
    224: {'CB': 1.02, 'CB_S': 1.03, 'GAB': 1.06, 'Residual': 1.08, 'Broad': 1.10, 'Refiner': 1.25, 'DLA alone': 1.10},
    512: {'CB': 1.02, 'GAB': 1.12, 'Residual': 1.50, 'Broad': 1.25, 'Refiner': 2.5, 'DLA alone': 1.8},
}
NARROW = dict(embed_dims=384, num_layers=16, num_heads=12, feedforward_channels=1152)


def deit(size: int, plugs: str | Sequence[Mapping] = (), arch='deit-small') -> nn.Module:
    return VisionTransformer(arch=arch, img_size=size, plugs=plugs)


def swin(**settings) -> nn.Module:
    return SwinTransformer(arch='tiny', out_indices=(0, 1, 2, 3), pad_small_map=True, drop_path_rate=0.0, **settings)


def mmpretrain_deit(size: int) -> nn.Module:
    from mmpretrain.models import VisionTransformer as Stock

    return Stock(arch='deit-small', img_size=size)


def timm_deit(size: int) -> nn.Module:
    import timm

    return timm.create_model('deit_small_patch16_224', img_size=size, num_classes=0)


def mmpretrain_swin() -> nn.Module:
    from mmpretrain.models import SwinTransformer as Stock

    return Stock(arch='tiny', out_indices=(0, 1, 2, 3), pad_small_map=True, drop_path_rate=0.0)


def mmdet_swin() -> nn.Module:
    from mmdet.models.backbones import SwinTransformer as Stock

    return Stock(drop_path_rate=0.0)


def timm_swin() -> nn.Module:
    import timm

    return timm.create_model(
        'swin_tiny_patch4_window7_224', features_only=True, img_size=None, strict_img_size=False, drop_path_rate=0.0
    )


def _autocast(device: str, dtype: torch.dtype) -> AbstractContextManager:
    """Autocast to half precision. No autocast for float32, which torch 2.1 refuses as an autocast type."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device, dtype)


def training(model: nn.Module, shape: Sequence[int], device: str, dtype: torch.dtype) -> Callable[[], None]:
    """One training step without optimizer: forward, the sum of all outputs, backward."""
    model.to(device)
    model.train()
    x = torch.randn(shape, device=device)

    def step() -> None:
        with _autocast(device, dtype):
            outs = model(x)
        sum(out.float().sum() for out in (outs if isinstance(outs, tuple | list) else [outs])).backward()
        model.zero_grad()

    return step


def inference(model: nn.Module, shape: Sequence[int], device: str, dtype: torch.dtype) -> Callable[[], None]:
    """One forward in inference mode."""
    model.to(device)
    model.eval()
    x = torch.randn(shape, device=device)

    def step() -> None:
        model.eval()
        with torch.inference_mode(), _autocast(device, dtype):
            model(x)

    return step


MODES = {'training': training, 'inference': inference}


class Suite:
    """The tables of whole models.

    Args:
        timer: Times them.
        dtype: float32, or the precision of autocast.
        batch: Images in a batch at 224 x 224; at 512 x 512 a quarter of them.
    """

    def __init__(self, timer: Timer, dtype: torch.dtype, batch: int):
        self.timer, self.dtype, self.batch = timer, dtype, batch

    def run(self) -> Iterator[Table]:
        """All tables."""
        jobs = [partial(self.plain_deit, mode) for mode in MODES]
        jobs += [partial(self.plain_swin, mode, size) for size in ((512, 512), (800, 1216)) for mode in MODES]
        jobs += [partial(self.plugged_deit, mode, size) for size in TARGETS for mode in MODES]
        jobs += [self.revit, *(partial(self.refined, mode) for mode in MODES)]
        return (run_table(job, self.timer.device) for job in jobs)

    def table(self, title: str, mode: str, models: Mapping[str, nn.Module], shape, references, targets) -> Table:
        """One table of models that all take the same images."""
        cases = [
            Case(name, MODES[mode](model, shape, self.timer.device, self.dtype), targets.get(name))
            for name, model in models.items()
        ]
        batch, _, height, width = shape
        title = f'{title}, {height} x {width}, batch {batch}, {mode}'
        return self.timer.compare(title, cases, references)

    def plain_deit(self, mode: str) -> Table:
        models = {'vitplug': deit(224), 'mmpretrain': mmpretrain_deit(224), 'timm': timm_deit(224)}
        targets = {'vitplug': 1.02} if mode == 'training' else {}
        return self.table('DeiT-S, plain', mode, models, (self.batch, 3, 224, 224), ['mmpretrain', 'timm'], targets)

    def plain_swin(self, mode: str, size: tuple[int, int]) -> Table:
        models = {'vitplug': swin(), 'mmpretrain': mmpretrain_swin(), 'mmdet': mmdet_swin(), 'timm': timm_swin()}
        wanted = {'training': 0.85, 'inference': 0.80}[mode]
        targets = {'vitplug': wanted} if size == (512, 512) else {}
        return self.table('Swin-T, plain', mode, models, (1, 3, *size), ['mmpretrain', 'mmdet'], targets)

    def plugged_deit(self, mode: str, size: int) -> Table:
        models = {'plain': deit(size), **{name: deit(size, plugs) for name, plugs in PLUGS.items()}}
        batch = self.batch if size == 224 else max(1, self.batch // 4)
        targets = TARGETS[size] if mode == 'training' else {}
        return self.table('DeiT-S', mode, models, (batch, 3, size, size), ['plain'], targets)

    def of_texts(self, texts: Sequence[str]) -> Iterator[Table]:
        """DeiT-S at 224 x 224 with each of some plugs, as texts, against plain."""
        return (run_table(partial(self.chosen, tuple(texts), mode), self.timer.device) for mode in MODES)

    def chosen(self, texts: Sequence[str], mode: str) -> Table:
        models = {'plain': deit(224), **{text: deit(224, text) for text in texts}}
        return self.table('DeiT-S', mode, models, (self.batch, 3, 224, 224), ['plain'], {})

    def revit(self) -> Table:
        models = {'ViT-B': deit(224, arch='deit-base'), 'ReViT-B': deit(224, PLUGS['Residual'], 'deit-base')}
        shape = (max(1, self.batch // 4), 3, 224, 224)
        return self.table('ReViT-B', 'training', models, shape, ['ViT-B'], {'ReViT-B': 1.08})

    def refined(self, mode: str) -> Table:
        models = {'plain': deit(224, arch=NARROW), 'Refiner': deit(224, PLUGS['Refiner'], NARROW)}
        shape = (max(1, self.batch // 2), 3, 224, 224)
        return self.table('ViT 16 x 384, 12 heads', mode, models, shape, ['plain'], {'Refiner': 1.6})
