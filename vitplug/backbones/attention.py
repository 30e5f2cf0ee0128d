"""The attention branch of the hosts."""

from mmengine.model import BaseModule

from vitplug import hosting


class SelfAttention(hosting.SelfAttention, BaseModule):
    """:class:`vitplug.hosting.SelfAttention` with mmengine's initialisation of weights."""
