"""Breaks the code in one place at a time, and runs the tests that must notice.

    python tests/mutations.py                     # all of them: 40 minutes; status 1 if a mutation survives
    python tests/mutations.py sigma windows       # those with one of the words in their name
    python tests/mutations.py --list

The tests first have to pass without a mutation. Mutations are made in a copy of the tree, never in the tree itself.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ('configs', 'docs', 'tests', 'tools', 'vitplug', 'pyproject.toml', 'setup.py')
# pytest's exit statuses: all passed, some failed. Others are no answer, such as no test collected.
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Mutation:
    """A defect, and tests that must find it.

    Args:
        name: The defect, in words.
        file: The file that has it, below ``vitplug``.
        old: Code that occurs once in the file.
        new: The code in its place.
        tests: Arguments of pytest, below ``tests``.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str

    def apply(self, folder: Path) -> str:
        """Breaks the copy in ``folder``; returns the sound text of the file.

        Raises:
            ValueError: If the code does not occur exactly once.
        """
        path = folder / 'vitplug' / self.file
        sound = path.read_text()
        if sound.count(self.old) != 1:
            raise ValueError(f'{self.name}: {self.file} has {self.old!r} {sound.count(self.old)} times, expected once')
        path.write_text(sound.replace(self.old, self.new))
        return sound


MUTATIONS = (
    # --- the core ---
    Mutation(
        'a fit does not look at the peak',
        'analysis/measures/gaussian_fit.py',
        'for shape in (paper, *_moments(values), _peak(values)):',
        'for shape in (paper, *_moments(values)):',
        'analysis/test_gaussian_fit.py -k sharp_peak',
    ),
    Mutation(
        'a config in no part of a paper is not noticed',
        'analysis/experiments.py',
        '- {*beyond}):',
        '- {*beyond, *configs}):',
        'analysis/test_experiments.py -k wrong_lists',
    ),
    Mutation(
        'reset: tables are drawn as those of a new Swin',
        'analysis/measures/reset.py',
        'TABLE_STD = 1.0',
        'TABLE_STD = 0.02',
        'analysis/test_learned_and_reset.py -k nothing_else',
    ),
    Mutation(
        'a reset leaves the second RelPosMlp',
        'analysis/measures/reset.py',
        r'rel_pos_mlp(_\d+)?\.bias',
        r'rel_pos_mlp\.bias',
        'analysis/test_learned_and_reset.py -k nothing_else',
    ),
    Mutation(
        'the window mask is negated',
        'attention/core.py',
        'logits = logits + mask.to(logits.dtype)',
        'logits = logits - mask.to(logits.dtype)',
        'attention/test_core.py',
    ),
    Mutation(
        'the fused call has no mask',
        'attention/fused.py',
        'both = (a.mask if bias is None else a.mask + bias)',
        'both = (0 * a.mask if bias is None else 0 * a.mask + bias)',
        'attention/test_fast_forms.py',
    ),
    Mutation(
        'probabilities are rounded to half precision',
        'attention/precision.py',
        'return torch.softmax(logits, -1, dtype=at_least_float32(logits.dtype), out=out)',
        'return torch.softmax(logits, -1, out=out)',
        'attention/test_core.py -k half',
    ),
    Mutation(
        'keys beyond the queries count as padding',
        'attention/inputs.py',
        'return self.k.shape[-2] - self.num_padded',
        'return min(self.k.shape[-2], self.q.shape[-2])',
        'attention/test_fast_forms.py -k keys_beyond',
    ),
    Mutation(
        'the fused call attends to padded keys',
        'attention/fused.py',
        'a, bias = a.unpadded(), a.offset_bias',
        'a, bias = a, a.offset_bias',
        'attention/test_fast_forms.py -k padded_keys',
    ),
    Mutation(
        'query and key grids are exchanged in a bias',
        'attention/grids.py',
        'slid = table_Hyx.unfold(1, self.keys.height, 1).unfold(2, self.keys.width, 1)',
        'slid = table_Hyx.unfold(1, self.queries.height, 1).unfold(2, self.queries.width, 1)',
        'attention/test_biases.py',
    ),
    Mutation(
        'bias rows begin a row too late',
        'attention/grids.py',
        'keys = slice((height - 1 - y) * key_width, (height - 1 - y + key_height) * key_width)',
        'keys = slice((height - y) * key_width, (height - y + key_height) * key_width)',
        'attention/test_biases.py',
    ),
    Mutation(
        'the gradient of bias rows is not summed over heads',
        'attention/tiles.py',
        'grad_bias.sum(0, keepdim=True) if one_for_all else grad_bias',
        'grad_bias[:1] if one_for_all else grad_bias',
        'attention/test_fast_forms.py',
    ),
    Mutation(
        'padded keys get attention in tiles',
        'attention/tiles.py',
        'logits[..., self.num_keys :] = -torch.inf',
        'logits[..., self.num_keys :] = 0',
        'attention/test_fast_forms.py',
    ),
    Mutation(
        'a bias by query is folded without the scale',
        'attention/inputs.py',
        'of_queries / self.scale',
        'of_queries',
        'attention/test_biases.py',
    ),
    Mutation(
        'padding is hidden from no softmax',
        'attention/site.py',
        'if self.attends_padding or self.valid_keys is None:',
        'if True:',
        'attention/test_queries_and_keys.py -k test_attention',
    ),
    Mutation(
        'windows are shifted the other way',
        'attention/layouts.py',
        '(padded - layout.shift)) % padded',
        '(padded + layout.shift)) % padded',
        'attention/test_core.py',
    ),
    Mutation(
        'masks are built as inference tensors',
        'attention/layouts.py',
        'with torch.inference_mode(False):\n        rows, cols = (_regions(',
        'if True:\n        rows, cols = (_regions(',
        'attention/test_core.py',
    ),
    Mutation(
        'uniform heads see masked tokens',
        'attention/core.py',
        '(site.mask.softmax(-1).unsqueeze(2)',
        '((0 * site.mask).softmax(-1).unsqueeze(2)',
        'plugs/test_context_broadcast.py -k uniform',
    ),
    Mutation(
        'the carry is changed in place',
        'attention/carry.py',
        'return {**carry, key: value}',
        'carry[key] = value\n    return carry',
        'plugs/test_broad_attention.py -k carry',
    ),
    # --- the plugs ---
    Mutation(
        'CB leaves the class token out of the mean',
        'plugs/context_broadcast.py',
        'return x_BND.mean(dim=1, keepdim=True, dtype=wide)',
        'return x_BND[:, 1:].mean(dim=1, keepdim=True, dtype=wide)',
        'plugs/test_context_broadcast.py',
    ),
    Mutation(
        'CB averages padding',
        'plugs/context_broadcast.py',
        'return x_BND if valid_BN is None else x_BND.masked_fill(~valid_BN.unsqueeze(-1), value)',
        'return x_BND',
        'plugs/test_context_broadcast.py -k padding',
    ),
    Mutation(
        'squeeze and excitation has no ReLU',
        'plugs/context_broadcast.py',
        'self.fc1(mean_B1D).relu()',
        'self.fc1(mean_B1D)',
        'plugs/test_context_broadcast.py -k squeeze',
    ),
    Mutation(
        'sigma of the Gaussian is not squared',
        'plugs/gaussian_bias.py',
        '.to(distances[0].dtype).square().clamp(min=1e-4)',
        '.to(distances[0].dtype).clamp(min=1e-4)',
        'plugs/test_position_bias.py -k gaussian',
    ),
    Mutation(
        'the Gaussian of pooled keys is in units of the query grid, be it the coarser one',
        'plugs/gaussian_bias.py',
        'for unit, *sides in zip(_finer(pairs),',
        'for unit, *sides in zip(pairs.queries.hw,',
        'plugs/test_position_bias.py -k gaussian',
    ),
    Mutation(
        'residual attention takes tiles although they have no bias by query',
        'plugs/residual_attention/blend.py',
        ' and inputs.has_offset_bias_only',
        '',
        'attention/test_queries_and_keys.py -k residual',
    ),
    Mutation(
        'refined maps reach padded queries',
        'plugs/refiner/maps.py',
        'if valid_queries is not None:',
        'if False:',
        'attention/test_queries_and_keys.py -k refiner',
    ),
    Mutation(
        'the offsets of RelPosMlp lose their sign',
        'plugs/position_bias.py',
        'offsets.sign() * offsets.abs().log1p()',
        'offsets.abs().log1p()',
        'plugs/test_position_bias.py -k mlp',
    ),
    Mutation(
        'residual attention detaches the scores it hands on',
        'plugs/residual_attention/blend.py',
        '(scores, Site(site.layout, site.keys))',
        '(scores.detach(), Site(site.layout, site.keys))',
        'plugs/test_residual_attention.py -k "recursion or gradient"',
    ),
    Mutation(
        'fewer rows of scores get the nearest one, where no whole factor helps',
        'plugs/residual_attention/transitions.py',
        'first if size > before else',
        'first if True else',
        'attention/test_changing_grids.py -k resized',
    ),
    Mutation(
        'the row and the column of a class token get lost',
        'plugs/residual_attention/transitions.py',
        'torch.cat((prefix, places), dim)',
        'torch.cat((0 * prefix, places), dim)',
        'attention/test_changing_grids.py -k resized',
    ),
    Mutation(
        'broad attention pools keys to the grid of the queries',
        'plugs/broad_attention.py',
        'ts[-1][2]) for t, valid, _ in ts]',
        "tapped['q'][-1][2]) for t, valid, _ in ts]",
        'plugs/test_broad_attention.py -k pooled_keys',
    ),
    Mutation(
        'residual attention exchanges the shares',
        'plugs/residual_attention/blend.py',
        'torch.lerp(before.to(own.dtype), own,',
        'torch.lerp(own, before.to(own.dtype),',
        'plugs/test_residual_attention.py -k recursion',
    ),
    Mutation(
        'the gradient of alpha lacks the scores of the block before',
        'plugs/residual_attention/tiles.py',
        'grad_alpha = (towards_own - towards_before)',
        'grad_alpha = (towards_own - 0 * towards_before)',
        'attention/test_fast_forms.py -k blended',
    ),
    Mutation(
        'earlier blocks keep their weight in the written-out sum',
        'plugs/residual_attention/blend.py',
        '(c * (1 - alpha), *qk) for c, *qk in before',
        '(c, *qk) for c, *qk in before',
        'test_contract.py -k "twins and low-memory and vit"',
    ),
    Mutation(
        'broad attention scales by the width of a head',
        'plugs/broad_attention.py',
        "{'embed': last.embed_dims,",
        "{'embed': last.shape.head_dims,",
        'plugs/test_broad_attention.py -k "columnar or vit_with"',
    ),
    Mutation(
        'the refiner leaves probability on masked pairs',
        'plugs/refiner/maps.py',
        'maps = maps.masked_fill(mask != 0, 0)',
        'pass',
        'plugs/test_refiner.py -k "linear_is or attention_with"',
    ),
    Mutation(
        'the kernel of the transposed convolution is not flipped',
        'plugs/refiner/tiles.py',
        'flipped = kernel.flip(-2, -1)',
        'flipped = kernel',
        'attention/test_fast_forms.py -k convolved',
    ),
    Mutation(
        'the bottleneck has no shortcut',
        'plugs/refiner/bottleneck.py',
        'return normalize(self.adapt_bn, x + maps_BHNN)',
        'return normalize(self.adapt_bn, x)',
        'plugs/test_refiner.py -k chain',
    ),
    Mutation(
        'plugs in one token socket act in the order of the config',
        'plugs/plug_set.py',
        'dict(sorted(indices.items(), key=lambda item: (item[0].name, not item[1], item[1])))',
        'dict(indices)',
        'test_composition.py -k order_in_the_list',
    ),
    # --- the hosts ---
    Mutation(
        'padding of windows is not projected',
        'hosting/attention.py',
        'None if bias is None else bias[None].to(qkv.dtype))',
        'None)',
        'backbones/test_equals_mmpretrain.py -k "swin_pads or swin_outputs"',
    ),
    Mutation(
        'windows in inference get the masks of other windows',
        'hosting/attention.py',
        'else site.mask.chunk(parts, dim=1)',
        'else site.mask.flip(1).chunk(parts, dim=1)',
        'test_contract.py -k "by_parts and swin and none"',
    ),
    Mutation(
        'inference goes by parts in training mode too',
        'hosting/parts.py',
        'together = graph or branch.training or',
        'together = graph or',
        'backbones/test_parts.py',
    ),
    Mutation(
        'a new training mode forgets what is frozen',
        'backbones/base.py',
        'super().train(mode)\n        self.freeze()\n',
        'super().train(mode)\n',
        'test_contract.py -k "frozen and none and vit"',
    ),
    Mutation(
        'a new training mode drops in a host that is frozen beside its plugs',
        'backbones/base.py',
        '        self._freeze_host()\n        return self',
        '        return self',
        'test_contract.py -k "frozen_host and none and vit"',
    ),
    Mutation(
        'the carry is lost under activation checkpointing',
        'hosting/model.py',
        'return checkpoint(block, x_BND, site, carry, None, use_reentrant=False)',
        'return checkpoint(block, x_BND, site, {}, None, use_reentrant=False)',
        'test_contract.py -k "checkpointing and probe"',
    ),
    Mutation(
        'the masks of later stages are those of the first',
        'hosting/model.py',
        'sizes_B2 = shrink(sizes_B2, section.merge.stride)',
        'pass',
        'backbones/test_padding.py -k mask',
    ),
    Mutation(
        'the depth of a Swin block is one too large',
        'backbones/swin.py',
        "before + (int(block) + 1 if part == 'blocks'",
        "before + (int(block) + 2 if part == 'blocks'",
        'backbones/test_equals_mmpretrain.py -k depths',
    ),
    Mutation(
        'Swin V2 drops branches before their norms',
        'backbones/swin_v2.py',
        'attn = self.drop_path(self.norm1(branch))',
        'attn = self.norm1(self.drop_path(branch))',
        'backbones/test_swin_v2.py -k stochastic',
    ),
    Mutation(
        'the learned scale of cosines has no bound',
        'backbones/swin_v2.py',
        'self.logit_scale.clamp(max=log(MOST_SCALE)).exp()',
        'self.logit_scale.exp()',
        'backbones/test_swin_v2.py -k cosines',
    ),
    Mutation(
        'T2T-ViT: scores are divided by the root of the leaving width',
        'backbones/tokens_to_token.py',
        'self.scale = in_dims**-0.5',
        'self.scale = dims**-0.5',
        'backbones/test_t2t_vit.py -k gradients',
    ),
    Mutation(
        'T2T-ViT: random features without the squared length',
        'backbones/tokens_to_token.py',
        'x_BNT.square().sum(-1, keepdim=True) / 2',
        'x_BNT.square().sum(-1, keepdim=True) / 3',
        'backbones/test_t2t_vit.py -k gradients',
    ),
    Mutation(
        'T2T-ViT: random features in half precision',
        'backbones/tokens_to_token.py',
        'wide = at_least_float32(v_BNT.dtype)',
        'wide = v_BNT.dtype',
        'backbones/test_t2t_vit.py -k half',
    ),
    Mutation(
        'T2T-ViT: random features are trained',
        'backbones/tokens_to_token.py',
        'nn.Parameter(features, requires_grad=False)',
        'nn.Parameter(features)',
        'backbones/test_t2t_vit.py -k random_features',
    ),
    Mutation(
        'T2T-ViT: blocks do not get qk_scale',
        'backbones/t2t_vit.py',
        '            qk_scale=qk_scale,\n            norm_cfg=norm_cfg,\n            with_cp',
        '            norm_cfg=norm_cfg,\n            with_cp',
        'backbones/test_t2t_vit.py -k gradients',
    ),
    Mutation(
        'T2T-ViT: MLPs start by Xavier',
        'backbones/t2t_vit.py',
        'BaseModule.init_weights(self)',
        'super().init_weights()',
        'backbones/test_t2t_vit.py -k start',
    ),
    Mutation(
        'the maps of convolutional self-attention are not scaled',
        'backbones/lvt_layers.py',
        'logits = self.scale * self.attn(',
        'logits = self.attn(',
        'backbones/test_lvt.py -k test_maps',
    ),
    Mutation(
        'the output of a recursion is not activated',
        'backbones/lvt_layers.py',
        'F.silu(out_BND) if self.recursions > 1 else out_BND',
        'out_BND',
        'backbones/test_lvt.py -k test_maps',
    ),
    Mutation(
        'later recursions do not see the output of earlier ones',
        'backbones/lvt_layers.py',
        'x_BND = x_BND + self._attend(x_BND, site, plugs, carry)[0]',
        'self._attend(x_BND, site, plugs, carry)[0]',
        'backbones/test_lvt.py -k test_maps',
    ),
    Mutation(
        'a recursion blends with the scores of the recursion before it',
        'backbones/lvt_layers.py',
        'x_BND = x_BND + self._attend(x_BND, site, plugs, carry)[0]',
        'out_BND, carry = self._attend(x_BND, site, plugs, carry)\n            x_BND = x_BND + out_BND',
        'backbones/test_lvt.py -k plugs_act',
    ),
    Mutation(
        'padding of the keys goes to top and left',
        'backbones/lvt_layers.py',
        'F.pad(x_BDhw, (0, beside, 0, below))',
        'F.pad(x_BDhw, (beside, 0, below, 0))',
        'backbones/test_lvt.py -k test_maps',
    ),
    Mutation(
        'the class token is added after class attention',
        'backbones/lvt.py',
        'return self.norm(x_BND) if self.out_type',
        'x_BND = x_BND + self.cls_token\n        return self.norm(x_BND) if self.out_type',
        'backbones/test_lvt.py -k outputs_of_classifiers',
    ),
    Mutation(
        'the patches of later stages lie where those before them do',
        'backbones/lvt_layers.py',
        'return pixels.after(self.proj)',
        'return pixels',
        'backbones/test_lvt.py -k centred',
    ),
    Mutation(
        'rows of values are loaded into keys where heads are left out',
        'hosting/heads.py',
        'stock.chunk(len(heads)), strict=True)',
        'stock.chunk(len(heads))[::-1], strict=True)',
        'backbones/test_lvt.py -k stock_weights',
    ),
    Mutation(
        'relative positions ignore that keys are finer than queries',
        'backbones/mvit.py',
        'per_query, per_key = max(keys / queries, 1.0), max(queries / keys, 1.0)',
        'per_query, per_key = 1.0, max(queries / keys, 1.0)',
        'backbones/test_mvit.py -k mmpretrain',
    ),
    Mutation(
        'a head with several outputs gets its query once',
        'backbones/mvit.py',
        'if self.shape.repeats > 1:',
        'if False:',
        "test_contract.py -k 'mvit-refiner-no-reduction and twins'",
    ),
    Mutation(
        'tiles give relative positions of rows no gradient',
        'attention/tiles.py',
        'self.rows[queries] = pairs.sum(-1)',
        'self.rows[queries] = 0',
        'backbones/test_mvit.py -k large_maps',
    ),
    Mutation(
        'keys are laid where the queries are',
        'hosting/model.py',
        'return entering.every(self.strides(index)[1])',
        'return entering.every(self.strides(index)[0])',
        'backbones/test_mvit.py -k keys_lie',
    ),
    # --- checkpoints ---
    Mutation(
        'a checkpoint of any network is taken',
        'checkpoints/fit.py',
        'if not missing and not unused:',
        'if True:',
        'checkpoints/test_pretrained.py -k "wrong or another_network"',
    ),
    Mutation(
        'loaded weights may be overwritten by a later part of init_cfg',
        'checkpoints/pretrained.py',
        'any(loads_checkpoint(cfg) for cfg in init_cfg[:-1])',
        'False',
        'checkpoints/test_pretrained.py -k last',
    ),
    Mutation(
        'an existing file is overwritten',
        'checkpoints/files.py',
        '    if path.exists():\n        raise FileExistsError(',
        '    if path.exists():\n        path.unlink()\n        str(',
        'checkpoints/test_files.py -k overwritten',
    ),
    Mutation(
        'check sums of stored numbers are not looked at',
        'checkpoints/torch_file.py',
        'found = zlib.crc32(',
        'found = 0 * zlib.crc32(',
        'checkpoints/test_torch_file.py -k "bit or torch_load"',
    ),
    Mutation(
        'position tables of checkpoints lose their prefix tokens',
        'backbones/position_tables.py',
        'prefix, grid = table[:, :num_prefix], table[:, num_prefix:]',
        'prefix, grid = 0 * table[:, :num_prefix], table[:, num_prefix:]',
        'checkpoints/test_pretrained.py -k position_table',
    ),
    # --- runs ---
    Mutation(
        'one iteration that is not finite stops the training',
        'runs/hooks/non_finite.py',
        'if count < self.max_consecutive:',
        'if count < 0 * self.max_consecutive:',
        'runs/test_non_finite.py -k single',
    ),
    Mutation(
        'running statistics keep a batch that was not finite',
        'runs/hooks/non_finite.py',
        'torch._foreach_copy_(self.statistics, self.before)',
        'pass',
        'runs/test_non_finite.py -k statistics',
    ),
    Mutation(
        'an infinite gradient takes its step',
        'runs/hooks/non_finite.py',
        'optimizer.zero_grad(set_to_none=True)',
        'pass',
        'runs/test_non_finite.py -k gradients',
    ),
    Mutation(
        'padding of windows counts as a key in measures',
        'analysis/measures/places.py',
        'return self.patch >= 0',
        'return self.patch >= -1',
        'analysis/test_measures_attention.py',
    ),
    Mutation(
        'distances of pooled keys are those of the queries',
        'analysis/measures/attention.py',
        '((place.queries, place.pixels), (place.keys, place.key_pixels))',
        '((place.queries, place.pixels), (place.keys, place.pixels))',
        'analysis/test_measures_attention.py',
    ),
    Mutation(
        'rollout multiplies in the wrong order',
        'analysis/measures/attention.py',
        'step @ rolled',
        'rolled @ step',
        'analysis/test_measures_attention.py',
    ),
    Mutation(
        'plain probabilities without the mask of shifted windows',
        'analysis/measures/maps.py',
        '(logits if mask is None else logits + mask)',
        'logits',
        'analysis/test_measures_attention.py',
    ),
    Mutation(
        'keys of squares of tokens lie on the first token',
        'backbones/lvt.py',
        'return entering.merged(self._key_strides[index])',
        'return entering.every(self._key_strides[index])',
        'backbones/test_lvt.py -k keys_lie',
    ),
    Mutation(
        'negative weights of refined maps are subtracted',
        'analysis/measures/attention.py',
        'sizes = maps_BWHqN.abs()',
        'sizes = maps_BWHqN',
        'analysis/test_measures_other_maps.py -k "sign or bounds"',
    ),
    Mutation(
        'maps of two layouts are compared across windows',
        'analysis/measures/attention.py',
        'in_both = (keys >= 0) & (window_of_key[keys] == window_a[:, None])',
        'in_both = keys >= 0',
        'analysis/test_measures_other_maps.py -k layouts',
    ),
    Mutation(
        'a register is taken for the class token',
        'analysis/measures/attention.py',
        'if CLASS_TOKEN not in place.prefix_names:',
        'if not place.layout.num_prefix:',
        'analysis/test_measures_other_maps.py -k register',
    ),
    Mutation(
        'interval over images with the normal factor in place of Student t',
        'analysis/study/statistics.py',
        'half = stats.t.ppf((1 + level) / 2, np.maximum(n - 1, 1)) * np.sqrt(variance / n)',
        'half = stats.norm.ppf((1 + level) / 2) * np.sqrt(variance / n)',
        'analysis/test_study_statistics.py',
    ),
    Mutation(
        'jackknife without its factor',
        'analysis/study/statistics.py',
        'np.sqrt((count - 1) / count * ((left - left.mean(0)) ** 2).sum(0))',
        'np.sqrt(((left - left.mean(0)) ** 2).sum(0) / count)',
        'analysis/test_study_statistics.py',
    ),
    Mutation(
        'images of an analysis from the front, not evenly spaced',
        'analysis/study/images.py',
        'chosen = np.linspace(0, len(paths) - 1, min(num, len(paths))).round().astype(int)',
        'chosen = np.arange(min(num, len(paths)))',
        'analysis/test_study_images.py',
    ),
    Mutation(
        'picture of an image with red and blue exchanged',
        'analysis/study/images.py',
        'pixels_CHW[:3].flip(0).permute',
        'pixels_CHW[:3].permute',
        'analysis/test_study_images.py',
    ),
    Mutation(
        'folder of another analysis is taken',
        'analysis/study/store.py',
        'if found.get(key) != identity.get(key)]',
        'if key not in found]',
        'analysis/test_study_store.py',
    ),
    Mutation(
        'group of images without the one that is left out in the jackknife of CKA',
        'analysis/study/estimators.py',
        'if image != left_out]',
        'if image != 0 or left_out is None]',
        'analysis/test_study.py -k left_out',
    ),
    Mutation(
        'paper estimators of CKA take an image twice out of row sums for the jackknife',
        'analysis/measures/cka.py',
        'factor = x.shape[-1] / (x.shape[-1] - 1)',
        'factor = 1',
        'analysis/test_measures_features.py -k biased',
    ),
    Mutation(
        "CKA of an estimator goes into the results of another's",
        'analysis/study/features.py',
        "self.name = self.base if is_default else f'{self.base}-{estimator.name}'",
        'self.name = self.base',
        'analysis/test_study.py -k estimators',
    ),
    Mutation(
        'padding of the windows of MViT is seen',
        'backbones/mvit.py',
        'hides_padding=not self.shows_padding',
        'hides_padding=False',
        'backbones/test_mvit.py -k padding_of_windows',
    ),
    Mutation(
        'global blocks of a detector pool their keys as the blocks beside them',
        'backbones/mvit.py',
        'fewer = DOWNSCALE if',
        'fewer = 1 if',
        'backbones/test_mvit.py -k official_detector',
    ),
    Mutation(
        'windows of pooled tokens start new chains of scores',
        'plugs/residual_attention/plug.py',
        'return source.pairs == site.pairs or (',
        'return source.pairs == site.pairs and (',
        'backbones/test_mvit.py -k test_windows',
    ),
    Mutation(
        'an interrupted analysis takes a group of images for done',
        'analysis/study/run.py',
        'if all(len(observed) == len(self.units[unit]) for observed in waiting):',
        'if any(len(observed) == len(self.units[unit]) for observed in waiting):',
        'analysis/test_study.py -k goes_on',
    ),
    Mutation(
        'a token is similar to itself in the mean',
        'analysis/measures/features.py',
        'return (pairs_BNN.sum((1, 2)) - diagonal_B) /',
        'return pairs_BNN.sum((1, 2)) /',
        'analysis/test_measures_features.py -k similarity',
    ),
    Mutation(
        'the median of norms is that of all images',
        'analysis/measures/features.py',
        'norms_BN.quantile(0.5, dim=1, keepdim=True)',
        'norms_BN.quantile(0.5)',
        'analysis/test_measures_features.py -k outliers',
    ),
    Mutation(
        'CKA of features that are not centred',
        'analysis/measures/cka.py',
        'return [x - x.mean(0) for x in relative]',
        'return [x.double() for x in layers]',
        'analysis/test_measures_features.py -k cka',
    ),
    Mutation(
        'CKA by features has another denominator',
        'analysis/measures/cka.py',
        'return xy.square() / (xx * yy)',
        'return xy / (xx * yy).sqrt()',
        'analysis/test_measures_features.py -k cka',
    ),
    Mutation(
        'HSIC_1 counts pairs of an example with itself',
        'analysis/measures/cka.py',
        '/ (examples - 2)\n',
        '/ examples\n',
        'analysis/test_measures_features.py -k u_statistic',
    ),
    Mutation(
        'CKA of batches is the mean of their CKAs',
        'analysis/measures/cka.py',
        "return _normalised(*(np.sum([part[name] for part in parts], axis=0) for name in ('xy', 'xx', 'yy')))",
        "return np.mean([_normalised(*(part[name] for name in ('xy', 'xx', 'yy'))) for part in parts], axis=0)",
        'analysis/test_measures_features.py -k batches',
    ),
    Mutation(
        'Grad-CAM weighs channels by the largest gradient',
        'analysis/measures/grad_cam.py',
        'grad_BND.mean(1))',
        'grad_BND.amax(1))',
        'analysis/test_grad_cam.py -k hooks',
    ),
    Mutation(
        'Grad-CAM counts what speaks against the score',
        'analysis/measures/grad_cam.py',
        ').relu()',
        ').abs()',
        'analysis/test_grad_cam.py -k hooks',
    ),
    Mutation(
        'Grad-CAM gives an empty map where nothing reads the patches',
        'analysis/measures/grad_cam.py',
        'if grad_BND is None or not grad_BND[:, layout.num_prefix :].any():',
        'if grad_BND is None:',
        'analysis/test_grad_cam.py -k class_token',
    ),
    Mutation(
        'Grad-CAM leaves its forward on the backbone',
        'analysis/measures/grad_cam.py',
        '        del backbone.forward\n',
        '        pass\n',
        'analysis/test_grad_cam.py -k stays',
    ),
    Mutation(
        "Grad-CAM leaves a gradient on the caller's images",
        'analysis/measures/grad_cam.py',
        'images.detach().clone().requires_grad_()',
        'images.requires_grad_()',
        'analysis/test_grad_cam.py -k stays',
    ),
    Mutation(
        'Grad-CAM forgets the padding',
        'analysis/measures/grad_cam.py',
        'return images if sizes is None else mark_padding(images, sizes.tolist())',
        'return images',
        'analysis/test_grad_cam.py -k padding',
    ),
    Mutation(
        'reshaped tokens have columns as rows',
        'analysis/measures/grad_cam.py',
        '.transpose(1, 2).unflatten(2, hw)',
        '.transpose(1, 2).unflatten(2, hw[::-1]).mT',
        'analysis/test_grad_cam.py -k reshaped',
    ),
    Mutation(
        'a map over the image is shifted by half a token',
        'hosting/pixels.py',
        '(pixels + 0.5 - start) / stride - 0.5',
        '(pixels - start) / stride',
        'analysis/test_grad_cam.py -k over_the_image',
    ),
    Mutation(
        'the score of a pixel is that of its column',
        'tasks/targets.py',
        'return logits_CHW[label, y, x], f',
        'return logits_CHW[label, :, x].sum(), f',
        'analysis/test_grad_cam.py -k class_of_pixels',
    ),
    Mutation(
        'the score of a detector with one stage is detached',
        'tasks/targets.py',
        'return args[0] if func is Tensor.detach else',
        'return',
        'analysis/test_grad_cam.py -k one_stage',
    ),
    Mutation(
        'the score of another box',
        'tasks/targets.py',
        'boxes.scores[self.index], int(',
        'boxes.scores[0], int(',
        'analysis/test_grad_cam.py -k score_of_a_box',
    ),
    Mutation(
        'receptive field: negative gradients count',
        'analysis/measures/receptive_field.py',
        'return gradient[0].mean(0).relu()',
        'return gradient[0].mean(0)',
        'analysis/test_receptive_field.py -k "rectified or convolution"',
    ),
    Mutation(
        'receptive field: of four central tokens, the lower right one',
        'analysis/measures/receptive_field.py',
        'return (hw[0] - 1) // 2, (hw[1] - 1) // 2',
        'return hw[0] // 2, hw[1] // 2',
        'analysis/test_receptive_field.py -k "central_token or definition"',
    ),
    Mutation(
        'receptive field: the size before padding is forgotten',
        'analysis/measures/receptive_field.py',
        'return pixels if sizes is None else mark_padding(pixels, sizes.tolist())',
        'return pixels',
        'analysis/test_receptive_field.py -k padding',
    ),
    Mutation(
        'receptive field: only the last image of a group counts',
        'analysis/erf/run.py',
        "total=kept['total'] + gradient",
        'total=gradient',
        'analysis/test_erf.py -k interrupted',
    ),
    Mutation(
        'Gaussian fit: rows and columns are mixed up',
        'analysis/measures/gaussian_fit.py',
        '((columns, x, sigma_x), (rows, y, sigma_y))',
        '((columns, y, sigma_y), (rows, x, sigma_x))',
        'analysis/test_gaussian_fit.py -k known',
    ),
    Mutation(
        "Gaussian fit: R^2 against the map's mean square",
        'analysis/measures/gaussian_fit.py',
        'r_squared = 1 - residual.var() / values.var()',
        'r_squared = 1 - residual.var() / np.square(values).mean()',
        'analysis/test_gaussian_fit.py -k noise',
    ),
    Mutation(
        'Gaussian fit: the minimum of a bias stays in',
        'analysis/measures/gaussian_fit.py',
        'return of_keys - of_keys.min()',
        'return of_keys',
        'analysis/test_gaussian_fit.py -k "central_query or every_host"',
    ),
    Mutation(
        'Lambda: its largest value in place of the 90 % quantile',
        'analysis/measures/learned.py',
        'LOW, HIGH = 0.1, 0.9',
        'LOW, HIGH = 0.1, 1.0',
        'analysis/test_learned_and_reset.py -k quantiles',
    ),
    Mutation(
        'sigma in pixels: of the keys alone',
        'analysis/measures/learned.py',
        'for place in (backbone.place_block, backbone.place_keys))',
        'for place in (backbone.place_keys, backbone.place_keys))',
        'analysis/test_learned_and_reset.py -k pixels',
    ),
    Mutation(
        'reset: the model itself is changed',
        'analysis/measures/reset.py',
        'model = copy.deepcopy(model)',
        'pass',
        'analysis/test_learned_and_reset.py -k nothing_else',
    ),
    Mutation(
        'codes of tiles are cut off, not rounded',
        'analysis/microscope/tiles.py',
        '.round().clamp(0, STEPS)',
        '.floor().clamp(0, STEPS)',
        'analysis/test_microscope.py -k half_a_step',
    ),
    Mutation(
        'tiles of windows take the rows of other queries',
        'analysis/microscope/tiles.py',
        'return maps[0, slots // size, :, slots % size].transpose(0, 1)',
        'return maps[0, slots % len(maps[0]), :, slots % size].transpose(0, 1)',
        'analysis/test_microscope.py -k half_a_step',
    ),
    Mutation(
        'a report may exceed its budget',
        'analysis/microscope/tiles.py',
        'if self.size(level) > self.budget:\n                self._drop(level)\n\n    def size',
        'if self.size(level) > 2 * self.budget:\n                self._drop(level)\n\n    def size',
        'analysis/test_microscope.py -k budget',
    ),
    Mutation(
        'the page paints another head',
        'analysis/microscope/page.js',
        'const tile = one * queries + query;',
        'const tile = (heads - 1 - one) * queries + query;',
        'analysis/test_microscope_page.py -k click',
    ),
    Mutation(
        'the page forgets the shift of windows',
        'analysis/microscope/page.js',
        'mod(t[axis] - geometry.shift, geometry.padded[axis])',
        'mod(t[axis], geometry.padded[axis])',
        'analysis/test_microscope_page.py -k windows',
    ),
    Mutation(
        'seeds are not paired',
        'ablation/statistics.py',
        'ours, theirs = (np.array([found[seed] for seed in seeds], float) for found in (by_seed, reference))',
        'ours, theirs = (np.array(sorted(found.values())[: len(seeds)], float) for found in (by_seed, reference))',
        'ablation/test_statistics.py',
    ),
    Mutation(
        'intervals are those of a normal distribution',
        'ablation/statistics.py',
        '    ends = test.confidence_interval(level)\n',
        '    ends = stats.ttest_1samp(np.tile(differences, 20), 0.0, axis=-1).confidence_interval(level)\n',
        'ablation/test_statistics.py',
    ),
    Mutation(
        "Holm's steps are not made monotonous",
        'ablation/statistics.py',
        'np.maximum.accumulate(steps, axis=-1)',
        'steps',
        'ablation/test_statistics.py',
    ),
    Mutation(
        'p values are not corrected',
        'ablation/statistics.py',
        'adjusted = dict(zip(intervals, holm(p), strict=True))',
        'adjusted = dict(zip(intervals, p, strict=True))',
        'ablation/test_statistics.py',
    ),
    Mutation(
        'late variants are not in the family',
        'ablation/statistics.py',
        'p = [1.0 if interval is None else float(interval.p) for interval in intervals.values()]',
        'p = [np.nan if interval is None else float(interval.p) * 1.0 for interval in intervals.values()]\n'
        '    p = np.where(np.isnan(p), 1.0, np.array(p) / len(p) * np.sum(np.isfinite(p)))',
        'ablation/test_statistics.py',
    ),
    Mutation(
        'equal differences are certain',
        'ablation/statistics.py',
        ' or np.ptp(differences) <= ROUNDING * scale:',
        ':',
        'ablation/test_statistics.py',
    ),
    Mutation(
        'verdicts ignore that less may be better',
        'ablation/statistics.py',
        '(difference > 0) == greater_is_better',
        'difference > 0',
        'ablation/test_statistics.py',
    ),
    Mutation(
        'a line that is being written breaks the report',
        'ablation/records.py',
        "*lines, _ = path.read_text(encoding='utf-8').split('\\n')",
        "lines = path.read_text(encoding='utf-8').splitlines()",
        'ablation/test_report.py',
    ),
    Mutation(
        'shares of one are taken for points',
        'ablation/summary.py',
        'return 100.0 if metric.startswith(SHARES) else 1.0',
        'return 1.0',
        'ablation/test_report.py',
    ),
    Mutation(
        'a running cell cuts a learning curve short',
        'ablation/summary.py',
        'used = [cell for cell in with_curve if cell.state is State.DONE] or with_curve',
        'used = with_curve',
        'ablation/test_report.py',
    ),
    Mutation(
        'labels are not escaped in the page',
        'ablation/report_page.py',
        """f'<td class="error">{escape(cell.error)}</td></tr>'""",
        """f'<td class="error">{cell.error}</td></tr>'""",
        'ablation/test_report.py',
    ),
    Mutation(
        'validation scenes show training photographs',
        'datasets/garment_scenes.py',
        'images, labels = load_split(folder, split)',
        "images, labels = load_split(folder, 'train')",
        'datasets/test_garment_scenes.py',
    ),
    Mutation(
        'prints are holes in a garment',
        'datasets/garment_scenes.py',
        'return ndimage.binary_fill_holes(photo >= max(1.0, GARMENT * photo.max()))',
        'return photo >= max(1.0, GARMENT * photo.max())',
        'datasets/test_garment_scenes.py',
    ),
    Mutation(
        'the order of random draws of a scene changes',
        'datasets/scenes.py',
        'size = rng.uniform(spec.size[0], max_size)',
        'rng.random()\n    size = rng.uniform(spec.size[0], max_size)',
        'datasets/test_garment_scenes.py -k as_before',
    ),
    Mutation(
        'a report that is read again has no curves',
        'ablation/report.py',
        "dict(content['curve'])",
        '{}',
        'ablation/test_report.py -k read',
    ),
    Mutation(
        'a report that is published names folders of the machine',
        'ablation/report.py',
        "return ABSOLUTE_PATH.sub('', value)",
        'return value',
        'ablation/test_report.py -k no_folder',
    ),
    Mutation(
        'a finished cell clears checkpoints of the user',
        'ablation/cells.py',
        'if path.name in written and path.is_file()',
        'if path.is_file()',
        'ablation/test_controller.py -k checkpoints_of_finished_cells',
    ),
    Mutation(
        'a fold of data is taken for another of the same name',
        'ablation/held.py',
        'if before[key][1] != now[key][1]',
        'if before[key][1] != before[key][1]',
        'ablation/test_grid.py -k fold',
    ),
    Mutation(
        'a worker imports modules from the current folder',
        'ablation/engines/engine.py',
        'sys.path[0] = {root!r}',
        'sys.path.append({root!r})',
        'ablation/test_slurm.py -k imports_nothing',
    ),
    Mutation(
        'an ablation does not pair initial weights',
        'runs/hooks/paired_weights.py',
        'own[name].copy_(weights[name])',
        'own[name].copy_(own[name])',
        'ablation/test_ablate.py -k same_host',
    ),
    Mutation(
        'the hash of an ablation cell ignores the seed',
        'ablation/cells.py',
        "    'randomness',\n    'runner_type',",
        "    'runner_type',",
        'ablation/test_grid.py -k another_seed',
    ),
    Mutation(
        'the hash of an ablation cell depends on the machine',
        'ablation/cells.py',
        'return os.path.basename(os.path.normpath(value)) if value else value',
        'return value',
        'ablation/test_grid.py -k hash_is_the_same',
    ),
    Mutation(
        'an ablation gives a killed worker up',
        'ablation/engines/engine.py',
        'return status < 0 or status in GOES_ON',
        'return status in GOES_ON',
        'ablation/test_controller.py -k killed_worker',
    ),
    Mutation(
        'an ablation removes checkpoints that are to be kept',
        'ablation/cells.py',
        "last = cell.checkpoint if keep == 'last' else None",
        'last = None',
        'ablation/test_controller.py -k checkpoints',
    ),
    Mutation(
        'an ablation trains a finished cell again',
        'ablation/controller.py',
        """            if cell.is_done:
                self._finish(cell)
            elif cell.failure""",
        '            if cell.failure',
        'ablation/test_controller.py -k skipped',
    ),
    Mutation(
        'an ablation loses a validation that was cut off',
        'ablation/recorder.py',
        "priority = 'VERY_LOW'",
        "priority = 'LOWEST'",
        'ablation/test_ablate.py -k cut_off',
    ),
    Mutation(
        'a cell resumes the checkpoint that it shall start from',
        'ablation/worker.py',
        'cfg.work_dir, cfg.resume = launcher, str(folder), AUTO',
        'cfg.work_dir, cfg.resume = launcher, str(folder), True',
        'ablation/test_ablate.py -k start_from',
    ),
    Mutation(
        '--resume ignores load_from where there is nothing to resume',
        'runs/saving/folders.py',
        '        if runner._resume:\n            runner._load_from = str(last_checkpoint(runner.work_dir))',
        '        runner._load_from = None',
        'runs/test_run_folders.py -k starts_from',
    ),
    Mutation(
        'a resumed training takes other data',
        'runs/saving/data_note.py',
        '            if was != now:',
        '            if False:',
        'runs/test_resumed_data.py -k other_images',
    ),
    Mutation(
        'a resumed training takes another normalisation beside the model',
        'runs/saving/fit.py',
        "model.get('data_preprocessor', cfg.get('data_preprocessor'))",
        "model.get('data_preprocessor')",
        'runs/test_checkpoint_fit.py -k wherever_it_stands',
    ),
    Mutation(
        'a resumed training forgets the best score of early stopping',
        'runs/hooks/hook_states.py',
        'hook.best_score, hook.wait_count = best, count',
        'hook.wait_count = count',
        "runs/resume_cases.py -k 'early and epochs and two'",
    ),
    Mutation(
        'a checkpoint is written before early stopping decides',
        'runs/hooks/hook_states.py',
        'runner._hooks = [*others[:place], *early, *others[place:]]',
        'runner._hooks = [*others, *early]',
        "runs/resume_cases.py -k 'early and iterations and after and not last'",
    ),
    Mutation(
        'a cell that Slurm has lost waits for ever',
        'ablation/engines/slurm.py',
        'return Interrupted.status if self.stopped else LOST',
        'return Interrupted.status if self.stopped else None',
        'ablation/test_slurm.py -k status_of_a_job',
    ),
    Mutation(
        'a silent Slurm ends the jobs of an ablation',
        'ablation/engines/slurm.py',
        '            is_there = True\n        # In this order',
        '            is_there = False\n        # In this order',
        'ablation/test_slurm.py -k silent',
    ),
    Mutation(
        "torchrun's exit status is taken for that of a cell",
        'ablation/engines/launch.py',
        "if '--status' not in command or process.returncode == 0:",
        'if True:',
        'ablation/test_slurm.py -k first_process',
    ),
    Mutation(
        'options of another engine are ignored',
        'ablation/engines/options.py',
        'if getattr(args, name) is not None:',
        'if False:',
        'ablation/test_engine_options.py -k other_engines',
    ),
    Mutation(
        'Swin trains its absolute positions before frozen stages',
        'backbones/swin.py',
        'self.absolute_pos_embed.requires_grad_(False)',
        'self.absolute_pos_embed.requires_grad_(True)',
        'backbones/test_equals_mmpretrain.py -k swins_freeze',
    ),
    Mutation(
        'two analyses work in one folder',
        'analysis/study/store.py',
        "    with locked(folder / LOCK, 'analysis', '--out'):\n",
        '    folder.mkdir(exist_ok=True)\n    if not (folder / LOCK).touch():\n',
        'analysis/test_study_store.py -k one_analysis',
    ),
    Mutation(
        'a dict in --cfg-options is taken for a word',
        'config/reading.py',
        'if advice := advice_for_dicts(value):',
        "if advice := '':",
        'runs/test_options.py -k dicts',
    ),
    Mutation(
        'metrics at several thresholds have the names of one',
        'ablation/metrics.py',
        'return [item + end for item in items for end in ends]',
        'return list(items)',
        'ablation/test_grid.py -k metrics_of_classification',
    ),
    Mutation(
        "MLP-Mixer's stochastic depth grows",
        'backbones/mlp_mixer.py',
        '[drop_path_rate] * self.num_layers',
        '[drop_path_rate * index for index in range(self.num_layers)]',
        'backbones/test_mlp_mixer.py -k stochastic_depth',
    ),
)


def _copy_tree(folder: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns('__pycache__', '.hypothesis'))
        else:
            shutil.copy(source, folder / name)


def _status(folder: Path, tests: str) -> int:
    """pytest's exit status for some tests of the copy."""
    command = [sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider', '-p', 'no:xdist']
    environment = {**os.environ, 'PYTHONPATH': str(folder), 'OMP_NUM_THREADS': '1'}
    return subprocess.run(
        [*command, *shlex.split(tests)], cwd=folder / 'tests', env=environment, stdout=subprocess.DEVNULL
    ).returncode


def _is_caught(folder: Path, mutation: Mutation) -> bool:
    sound = mutation.apply(folder)
    try:
        caught = _status(folder, mutation.tests) == FAILED
    finally:
        (folder / 'vitplug' / mutation.file).write_text(sound)
    print(f'{"caught  " if caught else "SURVIVED"}  {mutation.name}', flush=True)
    return caught


def _is_sound(folder: Path, mutation: Mutation) -> bool:
    sound = _status(folder, mutation.tests) == PASSED
    if not sound:
        print(f'FAILS     without {mutation.name}: {mutation.tests}', flush=True)
    return sound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('words', nargs='*', help='words of names; all mutations by default')
    parser.add_argument('--list', action='store_true', help='print the names')
    parser.add_argument('--trust', action='store_true', help='do not run the tests without the mutations first')
    args = parser.parse_args()
    chosen = [m for m in MUTATIONS if not args.words or any(word in m.name for word in args.words)]
    if not chosen:
        parser.error(f'no mutation has one of {args.words} in its name: see --list')
    if args.list:
        print('\n'.join(f'{m.file:40}  {m.name}' for m in chosen))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _copy_tree(folder)
        caught = [m for m in chosen if (args.trust or _is_sound(folder, m)) and _is_caught(folder, m)]
    print(f'{len(caught)} of {len(chosen)} mutations caught')
    return int(len(caught) < len(chosen))


if __name__ == '__main__':
    sys.exit(main())
