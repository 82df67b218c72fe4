"""JAAS text: what Kafka's parser takes, and only three login modules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config.jaas import (
    MODULES,
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    login_section,
    parse_login_file,
    parse_login_module,
)
from kbroker.errors import ConfigError

KEY = "listener.name.l.plain.sasl.jaas.config"


def test_the_text_of_a_listener() -> None:
    module = parse_login_module(
        KEY, f'{PLAIN_MODULE} required username="b" password="p" user_alice="s" user_b.c=\'t\';'
    )
    assert module.name == PLAIN_MODULE
    assert module.own_login == ("b", "p")
    assert module.users == {"alice": "s", "b.c": "t"}


def test_options_that_are_no_users() -> None:
    module = parse_login_module(KEY, f'{SCRAM_MODULE} REQUIRED user_="x" users=y tokenauth=true ;')
    assert module.own_login is None and module.users == {}
    assert module.options["tokenauth"] == "true"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        (r'"tab\there"', "tab\there"),
        (r'"\101\7\18"', "A\a\x018"),
        ('"= ; { } // /* */"', "= ; { } // /* */"),
        ('""', ""),
        ("''", ""),
        ('"it\'s"', "it's"),
        ("plain-word_1.2$", "plain-word_1.2$"),
        ('"\u00fc\u20ac"', "\u00fc\u20ac"),
    ],
)
def test_values(value: str, text: str) -> None:
    module = parse_login_module(KEY, f"{PLAIN_MODULE} required\n // all of it\n x={value}/* */;")
    assert module.options["x"] == text


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))
def test_any_text_in_quotes(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    module = parse_login_module(KEY, f'{PLAIN_MODULE} required password="{quoted}";')
    assert module.options["password"] == text


@pytest.mark.parametrize(
    "name",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
        f"{PLAIN_MODULE}2",
        PLAIN_MODULE.lower(),
        "PlainLoginModule",
    ],
)
def test_other_login_modules_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match="is not known here") as raised:
        parse_login_module(KEY, f'{name} required user.provider.url="ldap://x" password="secret";')
    assert repr(name) in str(raised.value) and KEY in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 login modules"),
        ("// nothing", "0 login modules"),
        (PLAIN_MODULE, "lacks a control flag"),
        (f"{PLAIN_MODULE};", "lacks a control flag"),
        (f"{PLAIN_MODULE} needed;", "no control flag"),
        (f"{PLAIN_MODULE} required", "lacks a ';'"),
        (f"{PLAIN_MODULE} required x;", "lacks a '='"),
        (f"{PLAIN_MODULE} required x=;", "lacks a value of 'x'"),
        (f"{PLAIN_MODULE} required x==;", "lacks a value of 'x'"),
        (f'{PLAIN_MODULE} required x="secret;', "cannot be read"),
        (f'{PLAIN_MODULE} required x="sec\nret";', "cannot be read"),
        (f"{PLAIN_MODULE} required; {PLAIN_MODULE} required;", "2 login modules"),
        (f"{PLAIN_MODULE} required password=secret, x=y;", "cannot be read"),
        (";" * 1_000_001, "more than 1000000"),
    ],
)
def test_texts_that_are_none(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        parse_login_module(KEY, text)
    assert KEY in str(raised.value) and "secret" not in str(raised.value)


@given(st.text(max_size=30))
def test_any_text_is_a_module_or_an_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_login_module(KEY, text)


FILE = f"""
/** A file as brokers have it. */
KafkaServer {{
    {SCRAM_MODULE} required
    username="admin"
    password="secret";
}};
internal.KafkaServer {{ {PLAIN_MODULE} required user_a=b; }};
two {{ {SCRAM_MODULE} required; {PLAIN_MODULE} optional; }};
Client {{
    org.apache.zookeeper.server.auth.DigestLoginModule required username="z" password="y";
}};
"""


def test_sections_of_a_file() -> None:
    sections = parse_login_file("f", FILE)
    found = login_section("f", sections, ("internal.KafkaServer", "KafkaServer"))
    assert found is not None and found.users == {"a": "b"}
    found = login_section("f", sections, ("other.KafkaServer", "KafkaServer"))
    assert found is not None and found.own_login == ("admin", "secret")
    assert login_section("f", sections, ("other",)) is None
    with pytest.raises(ConfigError, match="section two has 2 login modules"):
        login_section("f", sections, ("two",))
    with pytest.raises(ConfigError, match="DigestLoginModule' is not known"):
        login_section("f", sections, ("Client",))


@pytest.mark.parametrize(
    ("text", "why"),
    [("a", "lacks a '{'"), ("a {", "lacks a login module"), ("a { }", "lacks a ';'"),
     ("a { }; a { };", "section a twice"), ("{", "lacks the name")],
)  # fmt: skip
def test_files_that_are_none(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_login_file("f", text)


def test_the_modules() -> None:
    assert MODULES == (PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE)
