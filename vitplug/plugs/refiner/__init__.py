"""Refiner: attention maps expanded, convolved and reduced before they multiply the values.

*Refiner: Refining Self-attention for Vision Transformers*, Figure 3 and the equations of its "attention
expansion", "distributed local attention" (DLA) and "attention reduction"; the convolution's constraints
and the sharing of maps are those of its ablations. With H heads and H' = r H::

    A = softmax(q k^T)   (H, N, N)
    |
    W_E   1x1, H -> H'          expansion: new maps as mixtures of heads
    |
    C     k x k, depthwise      DLA: each map convolved over its N x N plane
    |
    W_R   1x1, H' -> H          reduction
    |
    A~                          not normalised again, by intention
    |
    A~ @ v

All three are linear and without bias, hence together one dense convolution H -> H, whatever r::

    K_eff[h, g] = sum_h' W_R[h, h'] K[h'] W_E[h', g]        (k x k each)

That form is computed: it never holds the H' maps, and its cost does not depend on r.

The official code (https://github.com/zhoudaquan/Refiner_ViT, models/refined_transformer.py) goes another way, which
is ``scheme='official'``. Its blocks form pairs; with s = d^-0.5 and the bottleneck chain B, maps of pair i are::

    A_i   = softmax(s q k^T) + s A_(i-1)     (H, N, N)   in the first block; the first pair has nothing to add
    A~_i  = s B(A_i)                         (H, N, N)   in the second, which has neither q nor k

and A_i, neither refined nor scaled, is what the next pair adds. The branches of all its blocks weigh twice, the MLP's
times a learned scale of every channel, ``(D,)``, which starts at 1e-5::

    x + 2 MSA(LN x)        x + 2 scale MLP(LN x)
"""

from .plug import Refiner

__all__ = ['Refiner']
