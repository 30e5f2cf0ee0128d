"""A training with `compile` compiles the backbone and ends as one without."""

from types import SimpleNamespace

import torch
from toy_training import toy_config

from vitplug.runs.checkpoint_fit import CheckpointFitHook
from vitplug.runs.hooks import CompileHook
from vitplug.runs.training_commands import build_runner


def test_hooks_of_a_config_are_not_doubled(tmp_path):
    cfg = toy_config(tmp_path, 'epochs')
    own = dict(type='vitplug.CheckpointFitHook')
    cfg.merge_from_dict(dict(launcher='none', custom_hooks=[own]))
    assert sum(isinstance(hook, CheckpointFitHook) for hook in build_runner(cfg).hooks) == 1


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Model(torch.nn.Module):
    """A backbone and a head."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = Doubled(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


def test_the_backbone_alone_is_compiled():
    graphs, model = [], Model()

    def backend(graph, inputs):
        graphs.append([node for node in graph.graph.nodes if node.op == 'call_function'])
        return graph

    runner = SimpleNamespace(cfg=dict(compile=dict(backend=backend)), model=model)
    CompileHook().before_run(runner)
    expected = model.head(model.backbone.forward(torch.ones(2, 3)))
    torch.testing.assert_close(model(torch.ones(2, 3)), expected)
    assert [len(nodes) for nodes in graphs] == [2] and runner._maybe_compile('train_step') is None
