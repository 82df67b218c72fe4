"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): who logs in with SCRAM.

Users are a part of the image, and any broker describes them: mechanisms and iterations, never keys.
The controller alters them. A client sends the salted password, so the broker makes the two keys
that it stores, and never sees the password (KIP-554). A user that cannot be altered does not hurt
the others of the request; one that is named twice is not altered at all. A change does not end the
connections of a user: the next login finds it.

Any handler thread, then the controller's; holds no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import (
    SCRAM_FIELD_BYTES_MAX,
    SCRAM_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
    USER_NAME_BYTES_MAX,
)
from kbroker.metadata.controller.user_changes import UserChange, UserResults
from kbroker.metadata.image import EVERY_USER, NO_CONFIGS
from kbroker.protocol import messages
from kbroker.security.scram import ScramMechanism, credential_of_salted, parse_credential

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage
    from kbroker.protocol.messages import (
        alter_user_scram_credentials,
        describe_user_scram_credentials,
    )

_NOT_FOUND: Final = (ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials")
_TWICE: Final = (ErrorCode.DUPLICATE_RESOURCE, "the user is named more than once")


def handle_describe(
    services: Services, call: Call[describe_user_scram_credentials.Request]
) -> None:
    table = messages.describe_user_scram_credentials
    image = services.controller.image
    wanted = Counter(each.name for each in call.message.users or ())
    results = []
    for user in wanted or sorted(image.users):
        infos = _infos(image, user)
        if wanted[user] > 1 or (wanted and not infos):
            code, message = _TWICE if wanted[user] > 1 else _NOT_FOUND
            results.append(
                table.UserScramCredentialsResult(user=user, error_code=code, error_message=message)
            )
        elif infos:
            results.append(
                table.UserScramCredentialsResult(
                    user=user, error_code=ErrorCode.NONE, error_message=None, credential_infos=infos
                )
            )
    call.answer(table.Response(error_code=ErrorCode.NONE, error_message="", results=results))


def describe_failure(
    call: Call[describe_user_scram_credentials.Request], code: ErrorCode, message: str | None
) -> describe_user_scram_credentials.Response:
    table = messages.describe_user_scram_credentials
    if code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return table.Response(error_code=code, error_message=message or "")
    # As Apache Kafka does: one result more, of no user, for any number of them.
    return table.Response(
        error_code=code,
        error_message=None,
        results=[table.UserScramCredentialsResult(user="", error_code=code, error_message=None)],
    )


def _infos(image: ClusterImage, user: str) -> list[describe_user_scram_credentials.CredentialInfo]:
    settings = image.users.get(user, NO_CONFIGS) if user != EVERY_USER else NO_CONFIGS
    infos = []
    for mechanism in ScramMechanism:
        if (text := settings.get(mechanism.value)) is not None:
            try:
                iterations = parse_credential(mechanism, text).iterations
            except ValueError:
                continue  # it logs no user in
            infos.append(
                messages.describe_user_scram_credentials.CredentialInfo(
                    mechanism=mechanism.code, iterations=iterations
                )
            )
    return infos


def handle_alter(services: Services, call: Call[alter_user_scram_credentials.Request]) -> None:
    request = call.message
    items = [
        *((each.name, _removal, each) for each in request.deletions),
        *((each.name, _addition, each) for each in request.upsertions),
    ]
    times = Counter(name for name, *_ in items)
    errors: dict[str, KafkaError] = {}
    changes: dict[str, UserChange] = {}
    for name, change_of, each in items:
        if name in errors:
            continue
        try:
            change = change_of(name, each)
            if times[name] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            changes[name] = change
        except KafkaError as error:
            errors[name] = error

    def done(results: UserResults) -> None:
        for name, error in zip(changes, results, strict=True):
            if error is not None:
                errors[name] = _in_words(error)
        call.answer_made(lambda: _response(times, errors))

    services.controller.alter_users(tuple(changes.values()), done)


def alter_failure(
    call: Call[alter_user_scram_credentials.Request], code: ErrorCode, message: str | None
) -> alter_user_scram_credentials.Response:
    request = call.message
    deleted = [each.name for each in request.deletions]
    names = dict.fromkeys([*deleted, *(each.name for each in request.upsertions)])
    error = KafkaError(code, message or "")
    return _response(names, dict.fromkeys(names, error))


def _response(
    names: Iterable[str], errors: dict[str, KafkaError]
) -> alter_user_scram_credentials.Response:
    table = messages.alter_user_scram_credentials
    results = []
    for name in names:
        error = errors.get(name)
        code = ErrorCode.NONE if error is None else error.code
        message = None if error is None else error.message
        results.append(table.Result(user=name, error_code=code, error_message=message))
    return table.Response(results=results)


def _removal(name: str, each: Any) -> UserChange:
    """KafkaError: why not."""
    return UserChange(name, remove=frozenset({_checked(name, each.mechanism).value}))


def _addition(name: str, each: Any) -> UserChange:
    """KafkaError: why not."""
    mechanism = _checked(name, each.mechanism)
    if each.iterations < SCRAM_ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if each.iterations > SCRAM_ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    for label, value in (("salt", each.salt), ("salted password", each.salted_password)):
        if not 0 < len(value) <= SCRAM_FIELD_BYTES_MAX:
            raise _unacceptable(f"The {label} has not 1 to {SCRAM_FIELD_BYTES_MAX} bytes")
    credential = credential_of_salted(mechanism, each.salt, each.salted_password, each.iterations)
    return UserChange(name, {mechanism.value: str(credential)})


def _checked(name: str, code: int) -> ScramMechanism:
    if not name:
        raise _unacceptable("Username must not be empty")
    if len(name.encode()) > USER_NAME_BYTES_MAX:
        raise _unacceptable(f"Username is longer than {USER_NAME_BYTES_MAX} bytes")
    mechanism = ScramMechanism.for_code(code)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _in_words(error: KafkaError) -> KafkaError:
    if error.code is ErrorCode.RESOURCE_NOT_FOUND:
        return KafkaError(error.code, "Attempt to delete a user credential that does not exist")
    return error


def _unacceptable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
