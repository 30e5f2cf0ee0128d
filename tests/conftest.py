"""Shared settings."""

import functools
import gc
import importlib
import logging
import os
import signal
import sys
from unittest import mock

import pytest
from hypothesis import settings
from joblib import cpu_count

# Before torch is loaded, for the processes that tests start, too: the models are tiny, and tests run side by side.
os.environ.setdefault('OMP_NUM_THREADS', '1')
os.environ.setdefault('GOMP_SPINCOUNT', '1000')

# These machines are noisy, so no deadline; the same examples every time, so a failure can be had again.
settings.register_profile('vitplug', deadline=None, derandomize=True, max_examples=50)
settings.register_profile('fresh', deadline=None, derandomize=False, max_examples=1000)
settings.load_profile('vitplug')


def pytest_addoption(parser):
    parser.addoption('--plug', metavar='MODULE.CLASS', help="run the contract on this plug in place of vitplug's own")
    parser.addoption(
        '--quick',
        action='store_true',
        help='leave out slow tests and run samples of large tables, each clause of the contract on one host a plug',
    )


def pytest_configure(config):
    """Puts the plug where the contract finds it, before its tests are collected."""
    # yapf writes tables below the home directory at its first import, and two workers at once would spoil the file.
    importlib.import_module('yapf.yapflib.yapf_api')
    if text := config.getoption('--plug'):
        from contract_of_plug import ContractOfPlug

        config.pluginmanager.register(ContractOfPlug(text))


@pytest.hookimpl(tryfirst=True)  # before -m leaves tests out, so that the sample is the same with any -m
def pytest_collection_modifyitems(config, items):
    """Keeps the quick tests where only these are asked for."""
    if config.getoption('--quick'):
        from sampling import quick, without

        kept = quick(items)
        config.hook.pytest_deselected(items=without(items, kept))
        items[:] = kept


def pytest_collection_finish():
    """Takes modules and tests out of the sight of garbage collection: mmengine asks for one with every data set."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """`-n auto` is a worker for every core that this process may use, unless xdist's own variable says another."""
    return None if 'PYTEST_XDIST_AUTO_NUM_WORKERS' in os.environ else cpu_count()


@pytest.fixture(scope='session', autouse=True)
def _one_thread():
    """The models are tiny: more threads only wait for each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope='session', autouse=True)
def _configs_are_formatted_once():
    """Commands write the same configs again and again, and yapf is slow."""
    from yapf.yapflib import yapf_api

    @functools.cache
    def formatted(text, style, options, format_code=yapf_api.FormatCode):
        return format_code(text, style_config=dict(style), **dict(options))

    def once(text, style_config, **options):
        return formatted(text, tuple(style_config.items()), tuple(options.items()))

    with mock.patch.object(yapf_api, 'FormatCode', once):
        yield


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    """Compiled code of one test must not count as a recompile in the next."""
    yield
    dynamo = sys.modules.get('torch._dynamo')
    if dynamo is not None and any(dynamo.utils.counters.values()):
        dynamo.reset()
        dynamo.utils.counters.clear()


@pytest.fixture(autouse=True)
def _own_process():
    """A command's variables, readers of files, signal handlers and mmengine instances must not reach the next test."""
    from bad_inputs.running import clear_managers
    from mmengine.runner.checkpoint import CheckpointLoader

    # With its handlers, which a training that ends in an error leaves, Ctrl-C would not end the tests.
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    clear_managers()  # a fixture that several tests share may have set some
    with mock.patch.dict(os.environ), mock.patch.dict(CheckpointLoader._schemes):
        yield
    clear_managers()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def mm_log(caplog):
    """What is logged through mmengine, whichever logger is current."""
    from mmengine.logging import MMLogger

    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO)
    yield caplog
    logger.removeHandler(caplog.handler)


@pytest.fixture(scope='session')
def digits(tmp_path_factory):
    """A tiny digits data set, which tests copy before they change it."""
    from small_models import small_digits

    return small_digits(tmp_path_factory, (20, 10), (4, 3))


@pytest.fixture
def folder(tmp_path):
    """Tiny configs, their data and the checkpoint of a training."""
    import bad_inputs

    return bad_inputs.prepare(tmp_path / 'row')
