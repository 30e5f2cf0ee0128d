"""What `bench` counts and prints."""

import pytest
import torch

from vitplug.attention import WindowLayout
from vitplug.lab import bench


def test_operations_and_calls_are_counted():
    x = torch.zeros(3)
    assert bench.operations(lambda: (x + 1) * 2) == 2

    def called():
        pass

    assert bench.python_calls(lambda: (called(), called())) == 3


@pytest.mark.parametrize('padding', [None, torch.zeros(1, 4, requires_grad=True)], ids=['zeros', 'token'])
def test_the_gradient_of_padding_looks_for_no_places(padding):
    """Which places hold padding is found once for a size, not in each backward."""
    x, layout = torch.zeros(2, 30, 4, requires_grad=True), WindowLayout(6, 5, window=4)
    leaves = [x] if padding is None else [x, padding]
    training = bench.operations(lambda: torch.autograd.grad(layout.to_windows(x, padding).sum(), leaves))
    inference = bench.operations(lambda: layout.to_windows(x, padding).sum())
    assert training - inference == (4 if padding is None else 7)


# Operations of inference and of training as ratios to timm's DeiT and mmdet's Swin: a plug costs its own and nothing
# else. Counts of torch 2.12 and Python 3.11, with a tenth more.
LIMITS = {
    'deit': dict(cb=(1.15, 1.17), gab=(1.17, 1.67), residual=(1.55, 1.69), broad=(2.24, 1.76), refiner=(2.32, 1.99)),
    'swin': dict(cb=(0.53, 0.93), gab=(0.51, 0.94), residual=(0.64, 0.99), broad=(0.69, 1.08), refiner=(0.81, 1.10)),
}


@pytest.mark.parametrize('host', LIMITS)
def test_a_plug_costs_its_own_operations_and_nothing_else(host):
    library = bench.HOSTS[host][1][0]
    counts = bench.overhead(host, ['plain', *bench.PLUGS])
    ratios = {
        name.removeprefix('vitplug '): [a / b for a, b in zip(own, counts[library], strict=True)]
        for name, own in counts.items()
    }
    inference, training, calls = ratios['plain']
    assert inference <= 1.05 and training <= 1.05 and calls <= 1.1
    for plug, most in LIMITS[host].items():
        assert all(ratio <= limit for ratio, limit in zip(ratios[plug], most, strict=False)), (plug, ratios[plug])
        assert all(own >= plain for own, plain in zip(counts[f'vitplug {plug}'], counts['vitplug plain'], strict=True))


@pytest.mark.integration
def test_tables_are_printed(capsys):
    argv = '--hosts deit --plugs plain cb --size 32 --batch 1 --seconds 0'
    assert bench.main(argv.split()) == 0
    out = capsys.readouterr().out
    assert out.count('vitplug cb') == 3 and 'deit, 32 x 32, batch 1, training, 5 rounds' in out
