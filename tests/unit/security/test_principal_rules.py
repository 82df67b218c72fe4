"""ssl.principal.mapping.rules, beside Apache Kafka's SslPrincipalMapper."""

from __future__ import annotations

import pytest

from kbroker.security.principal_rules import (
    NAME_CHARS_MAX,
    PATTERN_CHARS_MAX,
    NoRuleFits,
    PrincipalRules,
)

NAME = "CN=kafka-server1.Example.com,OU=ServiceUsers,O=Unknown/x,L=Unknown,C=US"
# Apache Kafka 4.3.0 returned these for NAME; None: it has no rule for it.
BESIDE_KAFKA = [
    ("DEFAULT", NAME),
    ("  DEFAULT , ", NAME),
    (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "kafka-server1.Example.com"),
    (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "kafka-server1.example.com"),
    (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U,DEFAULT", "KAFKA-SERVER1.EXAMPLE.COM"),
    (r"RULE:^CN=x/y/,DEFAULT", NAME),
    (r"RULE:^CN=x/y/", None),
    (r"RULE:CN/a/", None),  # the whole name must match
    (r"RULE:/a/", None),
    (r"RULE:.*/abc/", "abcabc"),  # every match is replaced, the empty one at the end too
    (r"RULE:(.*)/$1/", NAME),
    (r"RULE:^(.*)$/$2/", "$2"),
    (r"RULE:^(.*)$/$1$9/", f"{NAME}$9"),
    (r"RULE:^CN=(.*)$/$12/", f"{NAME[3:]}2"),
    (r"RULE:^CN=(.*)$/$0/", NAME),
    (r"RULE:^CN=(.*)$/$01/", NAME[3:]),
    (r"RULE:^CN=(.*)$/a\$b/", "a$b"),
    (r"RULE:^CN=(.*)$/a\\b/", r"a\b"),
    (r"RULE:^CN=(x)?(.*)$/[$1]$2/", f"[]{NAME[3:]}"),
    (
        r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),C=(.*?)$/$1@$2\/$3/L",
        "kafka-server1.example.com@serviceusers/unknown/x",
    ),
    (r"RULE:^.*O=Unknown\/x.*$/slash/", "slash"),
    (r"RULE:CN.*/b/,,DEFAULT", "b"),
    (
        r"RULE:^CN=(.*?),OU=(ServiceUsers.*)$/$2 , $1/, RULE:x/y/ , DEFAULT",
        "ServiceUsers,O=Unknown/x,L=Unknown,C=US , kafka-server1.Example.com",
    ),
]


@pytest.mark.parametrize(("rules", "user"), BESIDE_KAFKA)
def test_users_are_those_of_apache_kafka(rules: str, user: str | None) -> None:
    made = PrincipalRules(rules)
    if user is not None:
        assert made.user_of(NAME) == user
        return
    with pytest.raises(NoRuleFits):
        made.user_of(NAME)


@pytest.mark.parametrize(
    "rules",
    [
        *("", " , ", "default", "DEFAULTX", "XRULE:a/b/", "RULE:CN.*/", "RULE:CN.*"),
        *("RULE:CN.*/a/X", "RULE:CN.*/a/Lx", "RULE:CN.*/a/LU", "RULE:CN.*/a/ L"),
        *("RULE:x/b/ DEFAULT", "RULE:x/b/,foo", "RULE:(/b/"),
        # Apache Kafka fails for each name that they fit.
        *("RULE:CN=.*/a$/", "RULE:CN=.*/${x}/"),
        # Java has these, and Python has not or reads them in another way.
        *(r"RULE:\p{L}+/b/", "RULE:CN=(?i)x/b/", "RULE:[a-z&&[^b]]+/b/", r"RULE:\Qa\E/b/"),
        f"RULE:{'a' * (PATTERN_CHARS_MAX + 1)}/b/",
        "DEFAULT," * 1001,
    ],
)
def test_rules_that_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        PrincipalRules(rules)
    assert not isinstance(caught.value, NoRuleFits)


def test_letters_and_digits_are_those_of_ascii() -> None:
    rules = PrincipalRules(r"RULE:CN=(\w+)/$1/")
    assert rules.user_of("CN=a1_") == "a1_"
    with pytest.raises(NoRuleFits):
        rules.user_of("CN=é")


def test_a_name_that_is_too_long_has_no_user() -> None:
    assert PrincipalRules("DEFAULT").user_of("x" * NAME_CHARS_MAX)
    with pytest.raises(NoRuleFits, match="more than 4096"):
        PrincipalRules("DEFAULT").user_of("x" * (NAME_CHARS_MAX + 1))
