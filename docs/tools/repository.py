"""Hook of MkDocs: maps the repository's tree to the site, so that links of the repository also work in the site.

Pages are the files of ``docs/``, the READMEs of ``configs/`` and some files of the root, with their paths in the
repository. Other linked files (configs, modules) become pages that show the file; links to folders become text.
Equations, in fences named ``math``, become MathML: browsers render it without scripts or fonts from other servers.
"""

import re
from pathlib import Path
from posixpath import normpath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
BESIDE_DOCS = ('CHANGELOG.md', 'CONTRIBUTING.md', 'configs/*/README.md')
RELATIVE_LINK = re.compile(r'\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    fence = dict(name='math', **{'class': 'math'}, format=_equation)
    config.mdx_configs.setdefault('pymdownx.superfences', {})['custom_fences'] = [fence]
    config.watch += [str(ROOT / name) for name in ('configs', 'CHANGELOG.md', 'CONTRIBUTING.md')]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    # Pages of docs/ are at the top level of the site.
    own = [_file(f'docs/{file.src_uri}', config, file.dest_uri) for file in files if file.src_dir == config.docs_dir]
    own += [_file(str(path.relative_to(ROOT)), config) for glob in BESIDE_DOCS for path in sorted(ROOT.glob(glob))]
    known = {file.src_uri for file in own}
    linked = {target for file in own if file.is_documentation_page() for target in _targets(file)}
    shown = sorted(target for target in linked - known if (ROOT / target).is_file())
    return Files([*of_theme, *own, *(_listing(path, config) for path in shown)])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def point(link: re.Match) -> str:
        text, target, anchor = link[1], link[2], link[3] or ''
        path = _resolve(page.file.src_uri, target)
        if (ROOT / path).is_dir():
            return text
        is_listed = files.get_file_from_path(f'{path}.md') is not None
        return f'[{text}]({target}{".md" if is_listed else ""}{anchor})'

    return RELATIVE_LINK.sub(point, markdown)


def _file(path: str, config: MkDocsConfig, dest_uri: str | None = None) -> File:
    return File(path, str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=dest_uri)


def _listing(path: str, config: MkDocsConfig) -> File:
    """A page that shows a file; excluded from the search, because listings would crowd out the pages."""
    language = {'.py': 'python', '.yml': 'yaml', '.sh': 'bash'}.get(Path(path).suffix, 'text')
    head = f'---\ntitle: {Path(path).name}\nsearch: {{exclude: true}}\n---\n\n# `{path}`\n\n'
    return File.generated(config, f'{path}.md', content=f'{head}~~~~{language}\n{(ROOT / path).read_text()}~~~~\n')


def _targets(file: File) -> list[str]:
    return [_resolve(file.src_uri, link[1]) for link in RELATIVE_LINK.findall(file.content_string)]


def _resolve(page: str, target: str) -> str:
    return normpath(f'{Path(page).parent.as_posix()}/{target}')


def _equation(source: str, language: str, css_class: str, options: dict, md, **_) -> str:
    return f'<div class="{css_class}">{convert(source, display="block")}</div>'
