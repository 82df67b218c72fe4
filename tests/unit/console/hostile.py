"""Texts that a client could send as a name, a key, a value or a header, and what they would do on a
page that did not escape them.
"""

from __future__ import annotations

from typing import Final

from kbroker.console.page import (
    Cell,
    Column,
    Fact,
    Facts,
    Field,
    Form,
    Links,
    Notice,
    Page,
    Table,
    Tone,
    Unit,
    to,
)

TEXTS: Final = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><animate onbegin=alert(1) attributeName=x></svg>",
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "` onmouseover=alert(1)",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<object data=javascript:alert(1)>",
    "<embed src=javascript:alert(1)>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import'//evil.example/x.css'</style>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<form action=//evil.example><input name=password>",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</pre></td></tr></table><script>alert(1)</script>",
    "<!--><script>alert(1)</script>-->",
    "]]><script>alert(1)</script>",
    "<math><mtext></mtext><script>alert(1)</script></math>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<template><script>alert(1)</script></template>",
    "{{ 7*7 }}",
    "{% for c in [].__class__.__base__.__subclasses__() %}{% endfor %}",
    "{{ config.__class__.__init__.__globals__ }}",
    "${7*7}",
    "#{7*7}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "\ufeff<script>alert(1)</script>",
    "\uff1cscript\uff1ealert(1)\uff1c/script\uff1e",
    "a\u202eexe.txt",
    "a\u2066b\u2069c",
    "\u200e\u200f\u061c",
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31m",
    "line\r\nSet-Cookie: x=1",
    "\x00\x01\x08\x7f",
    "a\x0bb\x0cc\x85d",
    "\ud800",
    "//evil.example/x",
    "https://evil.example/x",
    "\\\\evil.example\\x",
    "../../../etc/passwd",
    "=cmd|' /C calc'!A0",
    "\u0300" * 50,
    "x" * 40_000,
)


def page_of(text: str) -> Page:
    """Every place of every kind of section has the text."""
    columns = [Column(f"c{n}", text, unit) for n, unit in enumerate(Unit)]
    cells = [Cell(text, to("topics", text), tone) for tone in (*Tone, Tone.BAD, Tone.BAD)]
    row = (cells * 2)[: len(columns)]
    linked = [Cell(text, text)] * len(columns)  # a path that no page made
    choice = Field("choice", text, text, options=[(text, text), ("", text)], help=text)
    fields = [
        choice, Field(text, text, text, help=text), Field("hidden", text, text, kind="hidden"),
        Field("search", text, text, kind="search"), Field("odd", text, text, kind=text),
    ]  # fmt: skip
    return Page(
        text,
        [
            Notice(Tone.BAD, text, text),
            Notice(Tone.GOOD, text),
            Facts("facts", text, [Fact("f", text, cell, Unit.PAYLOAD) for cell in cells]),
            Table("rows", text, columns, [row, linked], text, 5, to("topics", first=text)),
            Table("none", text, columns, [], text, next_path=text),
            Form("form", text, text, fields, text),
            Form("write", text, to("writes", text), fields, text, writes=True),
            Links("links", text, [(text, text), (text, to("groups", text))]),
        ],
        trail=[(text, to("topics", text)), (text, text)],
        refresh_s=5,
        tail_path=to("topics", text, "messages", "tail"),
    )
