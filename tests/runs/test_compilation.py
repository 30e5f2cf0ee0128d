"""A training with mmengine's `compile` ends as one without."""

from types import SimpleNamespace

import pytest
import torch
from toy_training import final_state, toy_config

from vitplug.runs.checkpoint_fit import CheckpointFitHook
from vitplug.runs.hooks import CompileHook
from vitplug.runs.training_commands import build_runner


def train(folder, **settings):
    """A toy training of one epoch; its second batch gives no finite loss."""
    cfg = toy_config(folder, 'epochs')
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.update(num_workers=0, persistent_workers=False)
    # Makes groups of parameters, which are dicts of mmengine's own.
    wrapper = dict(optimizer=dict(weight_decay=0.1), paramwise_cfg=dict(norm_decay_mult=0.0))
    toy = dict(model=dict(nan_at=(2,)), train_cfg=dict(max_epochs=1), launcher='none')
    cfg.merge_from_dict(dict(optim_wrapper=wrapper, **toy, **settings))
    build_runner(cfg).train()
    return final_state(folder)


@pytest.mark.slow
def test_compiled_training_ends_as_the_plain_one(tmp_path):
    plain = train(tmp_path / 'plain')
    with torch._dynamo.config.patch(suppress_errors=False):
        compiled = train(tmp_path / 'compiled', compile=dict(backend='eager'))
        assert torch._dynamo.utils.counters['frames']['ok'] > 0
    for part in ('state_dict', 'ema_state_dict', 'loss'):
        torch.testing.assert_close(compiled[part], plain[part], equal_nan=True)
    assert torch.tensor(plain['loss']).isnan().tolist() == [False, True, False, False, False, False]


def test_hooks_of_a_config_are_not_doubled(tmp_path):
    cfg = toy_config(tmp_path, 'epochs')
    own = dict(type='vitplug.CheckpointFitHook')
    cfg.merge_from_dict(dict(launcher='none', custom_hooks=[own]))
    assert sum(isinstance(hook, CheckpointFitHook) for hook in build_runner(cfg).hooks) == 1


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Dense(torch.nn.Module):
    """A model whose loss reads values, as those of detectors and segmentors do."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = Doubled(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


@pytest.mark.parametrize('scope', ['mmseg', 'mmpretrain'])
def test_of_a_dense_model_the_backbone_alone_is_compiled(scope):
    graphs, model = [], Dense()

    def backend(graph, inputs):
        graphs.append([node for node in graph.graph.nodes if node.op == 'call_function'])
        return graph

    runner = SimpleNamespace(cfg=dict(compile=dict(backend=backend), default_scope=scope), model=model)
    CompileHook().before_run(runner)
    expected = model.head(model.backbone.forward(torch.ones(2, 3)))
    torch.testing.assert_close(model(torch.ones(2, 3)), expected)
    is_dense = scope == 'mmseg'
    assert [len(nodes) for nodes in graphs] == [2] * is_dense and hasattr(runner, '_maybe_compile') == is_dense
