"""Heartbeat (12): a member lives, and learns whether its generation still is.

The compiled path passes on a heartbeat that it cannot decide; this file defines the API. Any
handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.heartbeat import Request


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    code = services.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    call.answer(messages.heartbeat.Response(error_code=code))
