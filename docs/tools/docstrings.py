"""Extension of griffe: converts the docstrings' Sphinx roles and literal blocks to Markdown."""

import re

from griffe import Extension, Object

ROLE = re.compile(r':(?:class|meth|attr|mod|data|func):`~?([^`]+)`')


class PlainDocstrings(Extension):
    """Turns ``:class:`Plug``` into ``Plug`` as code, and the two colons before an indented block into one."""

    def on_instance(self, *, obj: Object, **_) -> None:
        if obj.docstring:
            text = ROLE.sub(r'`\1`', obj.docstring.value).replace('``', '`')
            obj.docstring.value = re.sub(r'::(\n\n? )', r':\1', text)
