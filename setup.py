"""Packaging of vitplug. This file has version ranges; the files in requirements/ pin the tested versions."""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

# Files that `mim` and `vitplug::...` read from `vitplug/.mim` of an installed package.
MIM_FOLDERS = ('configs', 'tools')
MIM_INDEX = 'model-index.yml'

# What Python runs when it starts, as site-packages/vitplug.pth. It imports vitplug and mmengine before mmseg, for
# `_base_ = 'mmseg::...'` in programs of others, and before `mmcv._ext`, for vitplug.OpsFinder.
ON_START = (
    "import sys; sys.meta_path.insert(0, type('ImportsVitplug', (), dict(find_spec=lambda name, *_: "
    "__import__('vitplug.registry') and None if name in ('mmseg', 'mmcv._ext') else None)))\n"
)

# All that training, testing and predicting need, in the three tasks; scikit-learn has the digits of the demo.
REQUIRED = [
    'torch>=2.4,<2.14',
    'torchvision',
    'numpy',
    'matplotlib',
    'Pillow',
    'safetensors',
    'scikit-learn',
    'scipy',
    'tqdm',
    'onedl-mmengine>=0.10.12',
    'onedl-mmcv>=2.3.6',
    'onedl-mmdetection>=3.5.1',
    'onedl-mmsegmentation>=1.4.2',
    'onedl-mmpretrain>=1.3.6',
]
EXPORT = [
    'onnx',
    'onnxruntime',
    'onnxscript',
]
TEST = [
    'entmax',
    'hypothesis',
    'mypy',
    'onnx',
    'onnxruntime',
    'onnxscript',
    'pytest',
    'pytest-xdist',
    'pyyaml',
    'ruff',
    'selenium',
    'setuptools>=80,<82',
    'statsmodels',
    'submitit>=1.5',
    'timm>=1.0.31',
    'wheel',
]


class BuildWithMim(build_py):
    """Adds configs, tools and the index of models to the package: copies in a wheel, links in an editable install.

    Adds what Python runs when it starts, too.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            self.link(Path('vitplug', '.mim'))
        else:
            self.copy(Path(self.build_lib, 'vitplug', '.mim'))
        root = self.get_finalized_command('install').install_lib if self.editable_mode else self.build_lib
        Path(root, 'vitplug.pth').write_text(ON_START)

    def copy(self, mim: Path) -> None:
        # An earlier build may have left configs that no longer exist.
        shutil.rmtree(mim, ignore_errors=True)
        for folder in MIM_FOLDERS:
            shutil.copytree(folder, mim / folder, ignore=shutil.ignore_patterns('__pycache__'))
        shutil.copyfile(MIM_INDEX, mim / MIM_INDEX)

    def link(self, mim: Path) -> None:
        mim.mkdir(exist_ok=True)
        for name in (*MIM_FOLDERS, MIM_INDEX):
            if not (mim / name).is_symlink():
                (mim / name).symlink_to(Path('..', '..', name))


setup(
    name='vitplug',
    version='0.1.0',
    description="Five papers' attention changes as plugs for ViT and Swin backbones of OpenMMLab",
    long_description=Path('README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    python_requires='>=3.10',
    packages=find_packages(include=['vitplug', 'vitplug.*']),
    package_data={'vitplug': ['py.typed'], 'vitplug.lab.microscope': ['page.*'], 'vitplug.lab.study': ['papers.yml']},
    entry_points={'console_scripts': ['vitplug = vitplug.cli:main']},
    cmdclass={'build_py': BuildWithMim},
    install_requires=REQUIRED,
    extras_require={
        'export': EXPORT,
        'test': TEST,
        'timm': ['timm>=1.0.31'],
        # mmpretrain cannot be imported beside transformers 5: for programs that need no classifier of it.
        'huggingface': ['transformers>=5.24,<6', 'accelerate>=1.1'],
        'slurm': ['submitit>=1.5'],
    },
)
