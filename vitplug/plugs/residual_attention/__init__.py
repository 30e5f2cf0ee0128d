"""Residual Attention (ReViT).

*ReViT: Enhancing Vision Transformers Feature Diversity with Attention Residual Connections*, Eq. (10):
each block blends its attention scores with those the block before handed over::

    S_0 = Q_0 K_0^T                                 scaled, before bias, mask and softmax
    S_l = alpha Q_l K_l^T + (1 - alpha) S_{l-1}     handed on with its gradient

    block l-1 --S_{l-1}--> blend --S_l--> block l+1
                             |
                          softmax(S_l + bias + mask)

Written out, S_l is a weighted sum of all earlier blocks' own scores, and so the scores of one attention whose
heads are those of all these blocks side by side::

    S_l = [c_0 Q_0, ..., c_l Q_l] [K_0, ..., K_l]^T      c_l = alpha, earlier ones times 1 - alpha at each block

That form keeps no N x N tensor and needs l + 1 times the products; `low_memory` chooses it.
"""

from .plug import ResidualAttention

__all__ = ['ResidualAttention']
