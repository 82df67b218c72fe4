"""Passwords as they are stored: the text of Apache Kafka 3.9, and what is not one."""

from __future__ import annotations

import pytest

from kbroker.security.sealed_text import NotOpened, is_sealed, opened, seal

SECRET = "the-secret-\u20ac"
PASSWORD = "gar \U0001f511 heim, a:b"
# Made by org.apache.kafka.security.PasswordEncoder of Apache Kafka 3.9.1.
BY_KAFKA = (
    "initializationVector:15rubbRD0+pu8Eq8BDjPtg==,keyLength:128,salt:zDXlph5CDlxy3tCYM1wUILgRnzjSA"
    "hE9YXOTyWyU7JgEB7BeVRa6EjDsdg047ey7Mq3uRxTHjbh6bjTl6o8jlZgH4oqAw8nTjFwwZkhjyRFA01x4FLtwwrhu9Y9"
    "08sjs8Gs8VueVdq2eobz71XonT8ocphDbo/FpUd6G0K72k7BNChlEeOHzA1ZS9BHYy8sMpxuA3JCHRjqS8XkDfcPZTTfga"
    "PHQb8NChusSChOkj49Uhy1Fu5eNAdeekUnmPgB3QdSNeseDcP8m58w3gCNo7j0O08ArW91djVg5ZNmudUrsVnLrnuNxA9N"
    "b5w1lggUPczjqxfVOQVRO9oyuhR3HRA==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES"
    "/CBC/PKCS5Padding,iterations:4096,passwordLength:16,encryptedPassword:tpTHzTosNhONe8bhVSL/QKGI"
    "AkDO/ZNVnyADZs9Uq1k="
)
WITH_OTHER_ALGORITHMS = (
    "initializationVector:87VpPPMkn2GM4E5KdD9ihw==,keyLength:256,salt:k/PB/Pgkn06FCwH2j7oCET5ml757+"
    "+UFWJ+RrlfC0ugayfBFOY2drcAM4tSSifeFEOgxDx/HZlVaccppirCrH6HC21VBH0xAkuaVjte42WH9aGKStmFDo6dLIj6"
    "jn12H+HdR52H9Id0a4xGXlsJyu95zzWLu6QgHrmRir93hiDA6qXAVP8eh9iuc+K53EyDBRioF4QqjwEd9yWtxvZXpxgAaH"
    "AWYpYWbMF0Hi0tE5NDpeHWSBKZ4EqrPkOEz0//K00hV9NF8ywWWAxxD+umrqnZ17FcIfrBk+cQ6iMDKBwH6tYqmCpTzBWI"
    "rbRHkX98shtuqEC8GJfOio7aLwRoMNg==,keyFactoryAlgorithm:PBKDF2WithHmacSHA1,cipherAlgorithm:AES/C"
    "BC/PKCS5Padding,iterations:1024,passwordLength:1,encryptedPassword:LeNEymQADeXnOQ7BWapPWw=="
)


def test_a_text_of_apache_kafka_is_opened() -> None:
    assert is_sealed(BY_KAFKA)
    assert opened(SECRET, BY_KAFKA) == PASSWORD
    assert opened("s", WITH_OTHER_ALGORITHMS) == "x"


def test_a_text_of_ours_has_the_same_parts_and_is_never_twice_the_same() -> None:
    one, other = seal(SECRET, PASSWORD), seal(SECRET, PASSWORD)
    assert one != other and PASSWORD not in one and "heim" not in one
    assert opened(SECRET, one) == opened(SECRET, other) == PASSWORD
    assert {each.partition(":")[0] for each in one.split(",")} == {
        each.partition(":")[0] for each in BY_KAFKA.split(",")
    }
    assert opened(SECRET, seal(SECRET, "")) == ""
    assert opened("\udcff", seal("\udcff", PASSWORD)) == PASSWORD  # a byte of the environment


def test_a_text_that_is_no_password_of_this_secret() -> None:
    for secret in ("", "another", SECRET[:-1]):
        with pytest.raises(NotOpened, match=r"another password\.encoder\.secret"):
            opened(secret, BY_KAFKA)


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        ("keyLength:128", "keyLength:512", "128, 192 or 256 bits"),
        ("keyLength:128", "keyLength:" + "9" * 5_000, "128, 192 or 256 bits"),
        ("CBC/PKCS5Padding", "GCM/NoPadding", "only AES/CBC"),
        ("HmacSHA512", "HmacMD5", "PBKDF2"),
        ("iterations:4096", "iterations:0", "1 to 100000 iterations"),
        ("iterations:4096", "iterations:999999999", "1 to 100000 iterations"),
        ("iterations:4096", "iterations:-1", "1 to 100000 iterations"),
        ("salt:zDXl", "salt:zDX%", "not base64"),
        ("initializationVector:15ru", "initializationVector:", "wrong length"),
        ("passwordLength:16", "passwordLength:15", "another"),
        ("initializationVector:", "vector:", "no initializationVector"),
        ("IAkDO/ZNVnyADZs9Uq1k=", "", "base64|another"),
        ("tpTHzTosNhONe8bhVSL/QKGIAkDO/ZNVnyADZs9Uq1k=", "", "another"),
    ],
)
def test_a_damaged_or_hostile_text_is_refused(part: str, value: str, why: str) -> None:
    damaged = BY_KAFKA.replace(part, value)
    assert damaged != BY_KAFKA
    with pytest.raises(NotOpened, match=why):
        opened(SECRET, damaged)


def test_plain_passwords_are_not_taken_for_sealed_ones() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    for text in ("", ":", ",", "salt:x,iterations:1", f'{module} required user_a="b:c,d";',
                 "," * 100_000, "encryptedPassword:x" * 1_000, "\u20ac" * 100):  # fmt: skip
        assert not is_sealed(text)
