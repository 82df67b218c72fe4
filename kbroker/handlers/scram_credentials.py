"""DescribeUserScramCredentials (50): the users who have a password for SCRAM. There are no users.

The list of all users is empty; a user who is named is RESOURCE_NOT_FOUND, and one who is named more
than once DUPLICATE_RESOURCE, as at Apache Kafka.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.describe_user_scram_credentials import Request, Response

_NOT_FOUND: Final = (ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials")
_TWICE: Final = (ErrorCode.DUPLICATE_RESOURCE, "the user is named more than once")


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.describe_user_scram_credentials
    results = []
    for user, times in Counter(each.name for each in call.message.users or ()).items():
        code, message = _NOT_FOUND if times == 1 else _TWICE
        result = table.UserScramCredentialsResult(user=user, error_code=code, error_message=message)
        results.append(result)
    call.answer(table.Response(error_code=ErrorCode.NONE, error_message="", results=results))


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    return messages.describe_user_scram_credentials.Response(
        error_code=code, error_message=message or ""
    )
