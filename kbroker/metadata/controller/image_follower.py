"""A broker that is not the controller: its image is what the controller says, in order, fenced.

Place in the flow: a request of the controller (`broker_channels.py`) becomes an event of this
broker's own controller thread, which calls `follow`: the difference is applied to the image that
this broker acknowledged last, the logs follow (`Propagation.catch_up`), the image is published, and
the answer names the partitions whose logs cannot be used. An update that does not fit changes
nothing.

Refused with Kafka's codes: a controller of an epoch before one that was accepted, or of another
than the last in the store, where that can be asked (STALE_CONTROLLER_EPOCH), a request to another
start of this broker (STALE_BROKER_EPOCH), of another cluster (INCONSISTENT_CLUSTER_ID), a
difference from another image than ours (INVALID_UPDATE_VERSION; everything is sent then), and what
was sent before something that came before it, over another connection: topics that were made in
between would be deleted for it. A broker that was the controller may have read in the store what
the next one has done since; then a whole image of that one may be older, and is refused, too: the
one that is sent for that refusal is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kbroker.errors import ErrorCode
from kbroker.metadata.cluster_delta import DeltaMismatchError
from kbroker.metadata.controller.events import InStep
from kbroker.metadata.controller.image_updates import NOTHING, ImageAnswer, ImageUpdate
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.image import ClusterImage, ImageDelta, PartitionImage, delta_between
from kbroker.metadata.store.base import StoreUnavailableError
from kbroker.types import TopicPartition

LastEpoch = Callable[[], int]
# Has an event handled after all that have come by now.
Notify = Callable[[InStep], None]

log = logging.getLogger("kbroker.controller")


class ImageFollower:
    """See the head of this file; on the controller's thread only."""

    def __init__(self, propagation: Propagation, last_epoch: LastEpoch, notify: Notify) -> None:
        """`last_epoch` asks the store for the epoch of the last election; StoreUnavailableError
        where it cannot be asked."""
        self._propagation = propagation
        self._last_epoch = last_epoch
        self._notify = notify
        self._epoch = NOTHING
        self._read_in = NOTHING  # whole images of controllers up to this epoch may be too old
        self._reads = 0
        self._version = NOTHING
        self._image: ClusterImage | None = None  # as the controller said it, logs or not
        self._informed = False  # since this process began

    @property
    def follows(self) -> bool:
        """Whether a controller has sent us a whole image."""
        return self._image is not None

    @property
    def epoch(self) -> int:
        """Of the controller whose update was accepted last."""
        return self._epoch

    def refusal(self, update: ImageUpdate, broker_epoch: int, cluster_id: str | None) -> ErrorCode:
        """NONE, or why a broker that is registered so does not listen."""
        if update.broker_epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if update.delta.cluster_id != cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if update.controller_epoch > self._epoch:
            # Any client that connects can claim this; only the store knows which was elected. Where
            # it is out of reach, the sender is believed until it is back (`correct`).
            with suppress(StoreUnavailableError):
                if update.controller_epoch != self._last_epoch():
                    return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def correct(self) -> bool:
        """The store can be asked again. True if updates of a controller were accepted that was
        never elected: what it has sent does not count."""
        last_epoch = self._last_epoch()
        if self._epoch <= last_epoch:
            return False
        log.error("there was no controller of epoch %d, only %d yet", self._epoch, last_epoch)
        self._epoch = last_epoch
        self.forget()
        return True

    def accept_epoch(self, controller_epoch: int) -> None:
        """Refuse controllers of an epoch before this one from now on; it may be our own."""
        if controller_epoch > self._epoch:
            self._epoch = controller_epoch
            self.forget()

    def forget(self) -> None:
        """The updates so far do not count: the whole image is to be sent."""
        self._version, self._image = NOTHING, None

    def store_read(self) -> None:
        """What is published is what the store says now. StoreUnavailableError: it is away."""
        self._read_in = self._last_epoch()
        self._reads += 1

    def _trust(self, reads: int) -> None:
        """All whole images are refused that came before the refusal of one."""
        if reads == self._reads:
            self._read_in = NOTHING

    def follow(self, update: ImageUpdate) -> ImageAnswer:
        """Be at that version; it is for this start of this broker."""
        if update.controller_epoch < self._epoch:
            return ImageAnswer(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.accept_epoch(update.controller_epoch)
        if update.version < self._version:
            return ImageAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        if update.base == NOTHING and update.controller_epoch <= self._read_in:
            self._notify(InStep(partial(self._trust, self._reads)))
            return ImageAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        base = ClusterImage() if update.base == NOTHING else self._image
        if base is None or update.base not in (NOTHING, self._version):
            return ImageAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        try:
            image = update.delta.applied_to(base)
        except DeltaMismatchError as error:
            log.warning("the controller's image does not fit: %s", error)
            return ImageAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        known = self._propagation.image
        self._version, self._image = update.version, image
        image = _with_newer(image, known)
        delta = delta_between(known, image)
        new = _made_since(known, delta) if self._informed else frozenset()
        self._informed = True
        self._propagation.catch_up(image, replace(delta, from_store=True, new=new))
        unusable, refusing = self._propagation.unusable, self._propagation.refusing
        return ImageAnswer(ErrorCode.NONE, tuple(sorted(unusable)), tuple(sorted(refusing)))


def _made_since(known: ClusterImage, delta: ImageDelta) -> frozenset[TopicPartition]:
    """The partitions that cannot have been written to before: this process knew of all that there
    were, and they are as they were made. A start of a broker that is in sync changes that state."""
    new: set[TopicPartition] = set()
    for topic in (*delta.created, *delta.changed):
        before = known.topic_by_id(topic.topic_id)
        first = 0 if before is None else len(before.partitions)
        new.update(
            TopicPartition(topic.name, each.index)
            for each in topic.partitions[first:]
            if each.leader_epoch == each.partition_epoch == 0
        )
    return frozenset(new)


def _with_newer(sent: ClusterImage, known: ClusterImage) -> ClusterImage:
    """The image that was sent, except for partitions of which more is known here, and for levels
    of features of a later epoch, which a controller of an earlier kbroker does not send.

    That is so where this broker was the controller and read the store while a change of the next
    one was on its way; what came after that is sent soon.
    """
    newer: list[PartitionImage] = []
    for name, topic in sent.topics.items():
        mine = known.topics.get(name)
        if mine is None or mine.topic_id != topic.topic_id or mine.partitions is topic.partitions:
            continue
        pairs = zip(mine.partitions, topic.partitions, strict=False)
        newer += [own for own, theirs in pairs if own.partition_epoch > theirs.partition_epoch]
    return sent.with_partitions(newer).with_features(known.features)
