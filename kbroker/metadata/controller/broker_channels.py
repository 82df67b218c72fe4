"""The controller sends the other brokers its image: to each the difference from its own.

Place in the flow: after every publication the controller's thread hands the image over. A channel
for each living broker remembers which image that broker acknowledged and has one request in flight
at most; what changes meanwhile goes with the next one, so no queue grows for a slow broker. A
broker that starts, or says that it has another image than we think, is sent everything.

A request is fenced twice: by the controller's epoch, so that a replaced controller's requests are
refused, and by the epoch of the broker, so that it is not taken for one to a start before. When it
is not known whether a request arrived, everything is sent, after a pause that doubles up to
RETRY_MS_MAX.

On the controller's thread only. The transport answers from any thread; who makes this object sees
to it that `answered` and `retry` are called here. Nothing waits.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.controller.events import BrokerAnswered, TellBrokerAgain
from kbroker.metadata.controller.image_updates import (
    NOTHING,
    ImageAnswer,
    ImageUpdate,
    Sent,
    Transport,
)
from kbroker.metadata.image import BrokerImage, ClusterImage

log = logging.getLogger("kbroker.controller")

RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 2_000


@dataclass(slots=True)
class _Channel:
    broker: BrokerImage
    acknowledged: ClusterImage | None = None
    sent: ClusterImage | None = None  # in flight, or to be sent again after a pause
    failures: int = 0
    asked: bool = False  # to answer once more, though there is nothing to tell it


def channels_of(
    node_id: int,
    transport: Transport,
    notify: Callable[[BrokerAnswered | TellBrokerAgain], None],
    dice: random.Random | None,
) -> BrokerChannels:
    """Those of a controller, which `notify` gives events to handle."""
    return BrokerChannels(
        node_id,
        transport,
        lambda sent, answer: notify(BrokerAnswered(sent, answer)),
        lambda sent: notify(TellBrokerAgain(sent)),
        dice or random.Random(),
    )


class BrokerChannels:
    """See the head of this file."""

    def __init__(
        self,
        node_id: int,
        transport: Transport,
        answered: Callable[[Sent, ImageAnswer | None], None],
        retry: Callable[[Sent], None],
        dice: random.Random,
    ) -> None:
        """`answered` and `retry` are called from any thread, and bring their arguments back to
        the methods of these names."""
        self._node_id = node_id
        self._transport = transport
        self._answered = answered
        self._retry = retry
        self._dice = dice
        self._epoch = NOTHING
        self._image = ClusterImage()
        self._channels: dict[int, _Channel] = {}

    def follow(self, image: ClusterImage, controller_epoch: int) -> None:
        """This is the image now, of the controller of this epoch."""
        if controller_epoch != self._epoch:
            self._channels.clear()
        self._epoch, self._image = controller_epoch, image
        for node_id in [each for each in self._channels if each not in image.brokers]:
            del self._channels[node_id]
        for node_id, broker in image.brokers.items():
            if node_id == self._node_id:
                continue
            channel = self._channels.get(node_id)
            if channel is None or channel.broker.epoch != broker.epoch:
                channel = self._channels[node_id] = _Channel(broker)
            self._send(channel)

    def leave(self) -> None:
        """Out of office: no broker is sent anything any more."""
        self._channels.clear()

    def answered(self, sent: Sent, answer: ImageAnswer | None) -> bool:
        """What became of the request in flight; whether it says something about the broker."""
        channel = self._current(sent)
        if channel is None:
            return False
        if answer is not None and answer.error is ErrorCode.NONE:
            channel.acknowledged, channel.sent, channel.failures = channel.sent, None, 0
            self._send(channel)
            return True
        if answer is not None:
            log.warning("broker %d refuses the image: %s", sent.node_id, answer.error.name)
        channel.acknowledged = None
        channel.failures += 1
        self._transport.later(self._pause_ms(channel.failures), lambda: self._retry(sent))
        return False

    def retry(self, sent: Sent) -> None:
        """The pause after a request that failed is over."""
        channel = self._current(sent)
        if channel is not None and channel.failures:
            channel.sent = None
            self._send(channel)

    def ask_all(self) -> None:
        """Have every broker say again which of its logs it cannot use."""
        for channel in self._channels.values():
            channel.asked = True
            self._send(channel)

    def _current(self, sent: Sent) -> _Channel | None:
        channel = self._channels.get(sent.node_id)
        if channel is None or channel.sent is None or self._sent(channel, channel.sent) != sent:
            return None  # of a term, to a start, or for a request before
        return channel

    def _sent(self, channel: _Channel, image: ClusterImage) -> Sent:
        broker = channel.broker
        return Sent(self._epoch, broker.node_id, broker.epoch, image.version)

    def _pause_ms(self, failures: int) -> int:
        longest = min(RETRY_MS_MAX, RETRY_MS << min(failures - 1, 10))
        return self._dice.randint(longest // 2, longest)

    def _send(self, channel: _Channel) -> None:
        image, known = self._image, channel.acknowledged
        if channel.sent is not None or (known is image and not channel.asked):
            return
        channel.sent, channel.asked = image, False
        broker, sent = channel.broker, self._sent(channel, image)
        update = ImageUpdate(
            self._node_id,
            self._epoch,
            broker.epoch,
            NOTHING if known is None else known.version,
            image.version,
            ClusterDelta.between(known or ClusterImage(), image),
        )
        self._transport.update(
            broker,
            update,
            lambda answer: self._answered(sent, answer),
        )
