"""SCRAM: the vectors of the RFCs, logins that work, and messages that are not quite right."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbroker.limits import (
    SCRAM_FIELD_BYTES_MAX,
    SCRAM_MESSAGE_BYTES_MAX,
    USER_NAME_BYTES_MAX,
)
from kbroker.security.fake_credential import fake_credential
from kbroker.security.mechanism import AuthenticationError, CredentialsError, Login
from kbroker.security.scram import (
    ScramCredential,
    ScramMechanism,
    new_credential,
    parse_credential,
)
from kbroker.security.scram_client import ScramClient
from kbroker.security.scram_messages import (
    ScramMessageError,
    decode_name,
    encode_name,
    parse_client_first,
    parse_server_first,
)
from kbroker.security.scram_server import ScramServer, TokenCredential

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SECRET = b"a secret of the cluster"

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


class FewUsers:
    """Users of one mechanism, by name; `tokens` are delegation tokens."""

    def __init__(self, **users: ScramCredential) -> None:
        self.users = users
        self.tokens: dict[str, TokenCredential] = {}

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        return self.users.get(name)

    def fake(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        return fake_credential(mechanism, SECRET, name, 4096)

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        return self.tokens.get(token_id)


ALICE = new_credential(SHA_256, "hers", salt=b"0123456789")
USERS = FewUsers(alice=ALICE)


def logged_in(server: ScramServer, client: ScramClient) -> Login | None:
    client.check(server.evaluate(client.final(server.evaluate(client.first()))))
    return server.login


def test_the_example_of_rfc_7677() -> None:
    users = FewUsers(
        user=new_credential(SHA_256, "pencil", salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    )
    client = ScramClient(SHA_256, "user", "pencil", make_nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    server = ScramServer(SHA_256, users, make_nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = client.first()
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = server.evaluate(first)
    assert answer == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.final(answer)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    last = server.evaluate(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(last)
    assert server.login == Login("user")


@given(name=NAMES, password=NAMES, mechanism=st.sampled_from(ScramMechanism))
@example(name="a,b=c,,==", password=",=", mechanism=SHA_512)
def test_a_right_password_logs_in(name: str, password: str, mechanism: ScramMechanism) -> None:
    users = FewUsers(**{name: new_credential(mechanism, password)})
    server = ScramServer(mechanism, users)
    assert logged_in(server, ScramClient(mechanism, name, password)) == Login(name)


@pytest.mark.parametrize(("name", "password"), [("alice", "not hers"), ("bob", "hers")])
def test_a_wrong_password_and_an_unknown_name_fail_at_the_same_point(
    name: str, password: str
) -> None:
    server, client = ScramServer(SHA_256, USERS), ScramClient(SHA_256, name, password)
    final = client.final(server.evaluate(client.first()))
    with pytest.raises(CredentialsError, match="an unknown user or a wrong password") as raised:
        server.evaluate(final)
    assert type(raised.value) is CredentialsError and server.login is None


def test_an_unknown_name_looks_the_same_each_time() -> None:
    def first_answer(name: str) -> tuple[bytes, int]:
        answer = ScramServer(SHA_256, USERS).evaluate(ScramClient(SHA_256, name, "x").first())
        server = parse_server_first(answer)
        return server.salt, server.iterations

    assert first_answer("bob") == first_answer("bob") != first_answer("carol")


def test_no_proof_fits_a_fake_credential() -> None:
    """Not even one that is made of its own keys, should the secret be known."""
    users = FewUsers()
    fake = users.fake(SHA_256, "bob")
    server, client = ScramServer(SHA_256, users), ScramClient(SHA_256, "bob", "x")
    server.evaluate(client.first())
    server._credential = ALICE
    with pytest.raises(CredentialsError):
        server.evaluate(b"c=biws,r=x,p=" + base64.b64encode(fake.stored_key))
    assert server.login is None


def test_the_server_of_another_password_is_found_out() -> None:
    server, client = ScramServer(SHA_256, USERS), ScramClient(SHA_256, "alice", "hers")
    server.evaluate(client.final(server.evaluate(client.first())))
    with pytest.raises(ScramMessageError, match="does not know the password"):
        client.check(b"v=" + base64.b64encode(b"x" * 32))
    with pytest.raises(ScramMessageError, match="refuses: other-error"):
        client.check(b"e=other-error")


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, 9_999_999_999])
def test_a_client_does_not_compute_for_ever(iterations: int) -> None:
    client = ScramClient(SHA_256, "alice", "hers", make_nonce=lambda: "abc")
    with pytest.raises(ScramMessageError, match=f"asks for {iterations} iterations"):
        client.final(f"r=abcdef,s=c2FsdA==,i={iterations}".encode())


def test_a_client_takes_no_nonce_but_its_own() -> None:
    client = ScramClient(SHA_256, "alice", "hers", make_nonce=lambda: "abc")
    for nonce in ("abc", "xyzabc", "ab"):
        with pytest.raises(ScramMessageError, match="does not begin with the client's"):
            client.final(f"r={nonce},s=c2FsdA==,i=4096".encode())


# --- the final message ----------------------------------------------------------------------------


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(final: bytes) -> bytes:
        assert old in final
        return final.replace(old, new)

    return change


@pytest.mark.parametrize(
    "change",
    [
        replaced(b"r=theirs", b"r=theirsx"),
        replaced(b"r=theirsours", b"r=theirs"),  # CVE-2024-56128
        replaced(b"r=theirsours", b"r=ours"),
        replaced(b"c=biws", b"c=eSws"),
        replaced(b"c=biws", b"c=bixhPWFsaWNlLA=="),
        replaced(b"c=biws,", b""),
        replaced(b",p=", b",p=AA=="),
        replaced(b",p=", b",p=!"),
        replaced(b",p=", b",x="),
        replaced(b",p=", b",m=1,p="),
        lambda final: final[:-8] + b"AAAAAAA=",
        lambda final: final + b"\xff",
        lambda final: b"",
    ],
)
def test_a_final_message_that_was_changed(change: Callable[[bytes], bytes]) -> None:
    server = ScramServer(SHA_256, USERS, make_nonce=lambda: "ours")
    client = ScramClient(SHA_256, "alice", "hers", make_nonce=lambda: "theirs")
    final = client.final(server.evaluate(client.first()))
    with pytest.raises(CredentialsError):
        server.evaluate(change(final))
    assert server.login is None
    with pytest.raises(CredentialsError, match="after the end"):
        server.evaluate(final)  # it would have been right
    assert server.login is None


def test_nothing_comes_after_a_login() -> None:
    server = ScramServer(SHA_256, USERS)
    logged_in(server, ScramClient(SHA_256, "alice", "hers"))
    with pytest.raises(CredentialsError, match="after the end"):
        server.evaluate(b"n,,n=bob,r=abc")


def test_an_extension_of_the_final_message_is_ignored() -> None:
    server = ScramServer(SHA_256, USERS)
    client = ScramClient(SHA_256, "alice", "hers")
    final = client.final(server.evaluate(client.first()))
    with pytest.raises(CredentialsError, match="wrong password"):  # it changes what is signed
        server.evaluate(final.replace(b",p=", b",x=1,p="))


# --- the first message ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "channel binding"),
        (b"n", "channel binding"),
        (b"y,,n=alice,r=abc", "channel binding"),
        (b"p=tls-unique,,n=alice,r=abc", "channel binding"),
        (b"n,", "without a name"),
        (b"n,b=alice,n=alice,r=abc", "begins with a="),
        (b"n,,r=abc,n=alice", "in this order"),
        (b"n,,n=alice", "in this order"),
        (b"n,,m=1,n=alice,r=abc", "in this order"),
        (b"n,,n=alice,r=abc,m=1", "not known here"),
        (b"n,,n=,r=abc", "empty"),
        (b"n,a=,n=alice,r=abc", "empty"),
        (b"n,,n=al=ice,r=abc", "2C or 3D"),
        (b"n,,n=al=2cice,r=abc", "2C or 3D"),
        (b"n,,n=al\0ice,r=abc", "NUL"),
        (b"n,,n=al\xffice,r=abc", "UTF-8"),
        (b"n,,n=alice,r=", "printable"),
        (b"n,,n=alice,r=a b", "printable"),
        (b"n,,n=alice,r=a\xc3\xa9", "printable"),
        (b"n,,n=alice,r=abc,x", "name=value"),
        (b"n,,n=alice,r=abc,=1", "name=value"),
        (b"n,,n=alice,r=abc,x=1,x=2", "once"),
        (b"n,,n=alice,r=abc" + b",x=1" * 20, "once"),
        (b"n,,n=" + b"a" * (USER_NAME_BYTES_MAX + 1) + b",r=abc", "too long"),
        (b"n,,n=alice,r=" + b"a" * (SCRAM_FIELD_BYTES_MAX + 1), "a nonce of"),
    ],
)
def test_a_first_message_that_is_none(message: bytes, why: str) -> None:
    with pytest.raises(CredentialsError, match=why) as raised:
        ScramServer(SHA_256, USERS).evaluate(message)
    assert type(raised.value) is CredentialsError


@given(st.binary(max_size=60))
@example(b"n,,n=a,r=b")
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    try:
        first = parse_client_first(data)
    except ScramMessageError:
        return
    assert (first.gs2_header + first.bare).encode() == data
    assert first.name and first.nonce


@given(NAMES)
def test_names(name: str) -> None:
    if len(name.encode()) < USER_NAME_BYTES_MAX // 3:
        assert decode_name(encode_name(name)) == name
        assert "," not in encode_name(name)


def test_an_authorization_id_is_the_name_or_nothing() -> None:
    server = ScramServer(SHA_256, USERS)
    assert server.evaluate(b"n,a=alice,n=alice,r=abc").startswith(b"r=abc")
    with pytest.raises(AuthenticationError, match="different from username"):
        ScramServer(SHA_256, USERS).evaluate(b"n,a=bob,n=alice,r=abc")


def test_too_few_iterations_let_a_user_in_no_more() -> None:
    """It learns so where a wrong password does, and what it sees is no credential of its own."""
    weak = ALICE._replace(iterations=4095)
    server = ScramServer(SHA_256, FewUsers(alice=weak))
    first = parse_server_first(server.evaluate(b"n,,n=alice,r=abc"))
    assert (first.salt, first.iterations) != (weak.salt, weak.iterations)
    server = ScramServer(SHA_256, FewUsers(alice=weak))
    with pytest.raises(CredentialsError, match="4095 iterations, less than 4096"):
        logged_in(server, ScramClient(SHA_256, "alice", "hers"))


def test_a_message_is_no_place_to_store_data() -> None:
    """It is kept for as long as a login may take, of every connection that has not logged in."""
    long = b"n,,n=alice,r=abc,x=" + b"y" * SCRAM_MESSAGE_BYTES_MAX
    with pytest.raises(CredentialsError, match="a message of"):
        ScramServer(SHA_256, USERS).evaluate(long)
    escaped = encode_name("," * (USER_NAME_BYTES_MAX // 3))
    most = f"n,a={escaped},n={escaped},r={'r' * 1024},x=y".encode()
    assert parse_client_first(most).name == "," * (USER_NAME_BYTES_MAX // 3)


def test_a_delegation_token_logs_its_owner_in() -> None:
    users = FewUsers(alice=ALICE)
    token = new_credential(SHA_256, "hmac")
    users.tokens["id"] = TokenCredential(token, "bob", 12345)
    server = ScramServer(SHA_256, users)
    login = logged_in(server, ScramClient(SHA_256, "id", "hmac", is_token=True))
    assert login == Login("bob", by_token=True, expires_ms=12345)
    for name, is_token in (("id", False), ("alice", True)):
        client = ScramClient(SHA_256, name, "hmac" if name == "id" else "hers", is_token=is_token)
        server = ScramServer(SHA_256, users)
        with pytest.raises(CredentialsError, match="an unknown user"):
            logged_in(server, client)


# --- the stored form ------------------------------------------------------------------------------

STORED = (
    "salt=MDEyMzQ1Njc4OQ==,"
    f"stored_key={base64.b64encode(ALICE.stored_key).decode()},"
    f"server_key={base64.b64encode(ALICE.server_key).decode()},iterations=4096"
)


def test_the_stored_form() -> None:
    assert str(ALICE) == STORED
    assert parse_credential(SHA_256, STORED) == ALICE
    backwards = ",".join(reversed(STORED.split(",")))
    assert parse_credential(SHA_256, backwards) == ALICE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=",
        STORED + ",x=1",
        STORED + ",salt=AAAA",
        STORED.replace("salt=", "salts="),
        STORED.replace("salt=", "salt=!"),
        STORED.replace("iterations=4096", "iterations=-4096"),
        STORED.replace("iterations=4096", "iterations=4e3"),
        STORED.replace("iterations=4096", "iterations=" + "9" * 30),
        STORED.replace("stored_key=", "stored_key=AAAA"),
    ],
)
def test_a_text_that_is_no_stored_credential(text: str) -> None:
    with pytest.raises(ValueError, match="stored SCRAM credential"):
        parse_credential(SHA_256, text)


def test_a_credential_of_the_other_mechanism_is_none() -> None:
    with pytest.raises(ValueError, match="SCRAM-SHA-512's"):
        parse_credential(SHA_512, STORED)


@pytest.mark.parametrize(
    ("password", "iterations"), [("x", 4095), ("x", 16385), ("x", -1), ("", 4096)]
)
def test_a_credential_that_is_not_made(password: str, iterations: int) -> None:
    with pytest.raises(ValueError, match=r"iterations|empty"):
        new_credential(SHA_256, password, iterations)


def test_mechanisms_by_number_and_name() -> None:
    assert [(each.code, each.value) for each in ScramMechanism] == [
        (1, "SCRAM-SHA-256"),
        (2, "SCRAM-SHA-512"),
    ]
    assert ScramMechanism.for_code(2) is ScramMechanism.for_name("SCRAM-SHA-512") is SHA_512
    assert ScramMechanism.for_code(0) is ScramMechanism.for_name("scram-sha-256") is None
