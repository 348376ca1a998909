"""``report.html``: the whole report as one page that needs no network, no server and no script."""

from linattn_runtime_checks.report.html.page import render_html

__all__ = ["render_html"]
