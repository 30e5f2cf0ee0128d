"""Packaging of vitplug. Versions are ranges here; requirements/constraints.txt pins a set that was tried."""

from pathlib import Path

from setuptools import find_packages, setup

ONEDL = [
    'torchvision',
    'onedl-mmengine>=0.10.12',
    'onedl-mmcv>=2.3.6',
    'onedl-mmdetection>=3.5.1',
    'onedl-mmsegmentation>=1.4.2',
    'onedl-mmpretrain>=1.3.6',
]
OPENMMLAB = [
    'torchvision',
    'numpy<2',
    'opencv-python<4.12',
    'setuptools<81',
    'mmengine==0.10.7',
    'mmcv==2.1.0',
    'mmdet==3.3.0',
    'mmsegmentation==1.2.2',
    'mmpretrain==1.2.0',
    'ftfy',
    'regex',
]
TEST = ['hypothesis', 'pytest', 'pytest-xdist', 'ruff', 'scikit-learn', 'timm>=1.0.31']

setup(
    name='vitplug',
    version='0.1.0',
    description="Five papers' attention changes as plugs for ViT and Swin backbones of OpenMMLab",
    long_description=Path('README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    python_requires='>=3.10',
    packages=find_packages(include=['vitplug', 'vitplug.*']),
    install_requires=['torch>=2.4,<2.14', 'numpy'],
    extras_require={'onedl': ONEDL, 'openmmlab': OPENMMLAB, 'test': TEST},
)
