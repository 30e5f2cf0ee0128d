"""A training with mmengine's `compile` ends as one without."""

import pytest
import torch
from toy_training import final_state, toy_config

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
