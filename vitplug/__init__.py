"""vitplug: five papers' attention changes as plugs for OpenMMLab backbones.

Five papers, one attention core, N backbones:

- ``vitplug.plugs``      one file per paper (torch only)
- ``vitplug.attention``  the one place that computes attention (torch only)
- ``vitplug.backbones``  the registered hosts, built by configs as ``type='vitplug.<Name>'``
"""

__version__ = '0.1.0'
