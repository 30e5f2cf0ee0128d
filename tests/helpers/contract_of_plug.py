"""The contract of somebody's own plug: ``pytest tests/test_contract.py --plug 'module.Class(setting=1)'``.

Hosts that refuse the plug are skipped, each with its reason.
"""

import logging

import cases
import pytest

from vitplug.hosting import build_plugs
from vitplug.plugs.text import label_of, parse_plugs


class ContractOfPlug:
    """A plugin of pytest that runs the contract on one plug in place of vitplug's own.

    Args:
        text: The plug as command lines take it, such as ``my_plugs.MixedHeads(after=False)``.

    Raises:
        pytest.UsageError: If there is no such plug, or every host refuses it.
    """

    def __init__(self, text: str):
        import vitplug.registry  # noqa: F401  (finds plugs by their paths)

        try:
            plugs = parse_plugs(text)
            build_plugs(plugs)
        except (ValueError, ImportError, SyntaxError) as error:
            raise pytest.UsageError(f'--plug {text}: {error}') from error
        cases.HOSTS = cases.HOSTS | cases.EVEN_HOSTS
        cases.PLUGS, cases.PREFIX_PLUGS, cases.REFUSED = {label_of(text): plugs}, {}, {}
        hosts = cases.HOSTS | cases.TOKEN_HOSTS
        logging.disable()
        self.refusals = {host: reason for host, build in hosts.items() if (reason := refusal(build, plugs))}
        logging.disable(logging.NOTSET)
        if len(self.refusals) == len(hosts):
            raise pytest.UsageError(f'--plug {text}: every host refuses it: {self.refusals}')

    def pytest_collection_modifyitems(self, items):
        for item in items:
            host = item.callspec.params.get('host') if hasattr(item, 'callspec') else None
            if host in self.refusals:
                item.add_marker(pytest.mark.skip(reason=f'{host}: {self.refusals[host]}'))

    def pytest_report_header(self):
        return [f'{host} refuses the plug: {reason}' for host, reason in self.refusals.items()]


def refusal(build, plugs: list[dict]) -> str | None:
    """Why a host or the plug refuses to be built; any other error is left to the tests."""
    try:
        build(plugs=plugs)
    except ValueError as error:
        return ' '.join(str(error).split())
    except Exception:
        return None
