"""Reads the facts for one question from the running broker.

Place in the flow: the admin thread calls `facts` for a request of `/why`, and the console's thread
for its page, maybe at the same time: each has a `Gathering` of its own, which changes nothing that
it reads. What is read is what is there: the published image, the replicas, the groups, the quotas'
buckets, figures of the Observer. Nothing is counted for it beforehand, but for the moments that
`impaired.py` notes.

A coordinator's lock and a group's are held for the copying of one piece, a lock of C without the
GIL; another thread may run between two partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.clock import let_go_of_gil
from kbroker.config.topic import TopicConfig
from kbroker.errors import InvariantError
from kbroker.metadata.image import NO_LEADER
from kbroker.observe.why import facts as found
from kbroker.observe.why.facts import About, Facts, Question
from kbroker.observe.why.groups import group_facts, topics_of, with_members
from kbroker.observe.why.load import directories, load_facts, troubles
from kbroker.observe.why.rights import denials
from kbroker.quota.entities import CLIENT_QUOTAS
from kbroker.replica._open_transactions import open_transactions
from kbroker.replica.manager import needed_in_sync
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
    from kbroker.metrics.model import Figures
    from kbroker.observe.impaired import ImpairedPartitions
    from kbroker.observe.observer import Parts

_STEP: Final = 100
# The quotas that the clients of a subject are charged for.
_CHARGED: Final[Mapping[About, tuple[str, ...]]] = {
    About.CONSUMER: ("fetch", "request"),
    About.PRODUCE: ("produce", "request"),
    About.PARTITION: (),
    About.SLOW: ("produce", "fetch", "request", "mutation"),
}
_MUTATION: Final = "mutation"
_QUOTAS: Final = dict(zip(("produce", "fetch", "request", _MUTATION), CLIENT_QUOTAS, strict=True))
_FIGURES_MAX: Final = 1_000
MESSAGE_BYTES: Final = "max.message.bytes"
REQUEST_BYTES: Final = "socket.request.max.bytes"


class Gathering:
    """`load` gives the figures of threads, requests and disks."""

    def __init__(
        self, parts: Parts, clock: Clock, load: Callable[[], Figures], impaired: ImpairedPartitions
    ) -> None:
        services = parts.services()
        if services is None:
            raise InvariantError("a broker that runs has handlers")
        self._parts: Final = parts
        self._clock: Final = clock
        self._load: Final = load
        self._impaired: Final = impaired
        self._services: Final[Services] = services
        self._image: Final[ClusterImage] = services.controller.image

    def facts(self, question: Question) -> Facts:
        about, parts = question.about, self._parts
        group = committed = None
        topics = [question.name] if about in (About.PRODUCE, About.PARTITION) else []
        if about is About.CONSUMER:
            group = group_facts(self._services, self._image, question.name)
            # While its records are being written the coordinator has the lock of the group.
            if not any(self._writes(about, (), group)):
                group = with_members(self._services, parts.groups, group)
                committed = self._committed(question.name)
                topics = topics_of(self._services, question.name, committed)
        known = [topic for each in topics if (topic := self._image.topic(each)) is not None]
        images = _chosen(question, known)
        partitions = self._partitions(question, images[: found.PARTITIONS_MAX], committed)
        figures = self._load()
        return Facts(
            about=about,
            node_id=parts.node_id,
            now_ms=self._clock.wall_ms(),
            partitions=partitions,
            left_out=max(0, len(images) - found.PARTITIONS_MAX),
            missing=tuple(each for each in topics if self._image.topic(each) is None),
            topics_are_created=self._services.config["auto.create.topics.enable"],
            group=group,
            denials=tuple(denials(self._services, question, topics))[: found.DENIALS_MAX],
            too_large=self._too_large(question, known),
            throttles=tuple(self._throttles(question))[: found.THROTTLES_MAX],
            directories=directories(parts.readiness, figures),
            troubles=troubles(parts.readiness),
            load=load_facts(figures),
            writes=tuple(self._writes(about, partitions, group))[: found.WRITES_MAX],
        )

    # --- partitions -------------------------------------------------------------------------------

    def _committed(self, group: str) -> dict[TopicPartition, int]:
        """Offsets of the group, where this broker coordinates it."""
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in self._parts.groups.table.offsets(group)
        }

    def _partitions(
        self,
        question: Question,
        images: Iterable[PartitionImage],
        committed: Mapping[TopicPartition, int] | None,
    ) -> tuple[found.Partition, ...]:
        partitions, held = [], 0
        configs: dict[str, TopicConfig] = {}
        for number, image in enumerate(images, start=1):
            config = configs.get(image.topic)
            if config is None:
                config = configs[image.topic] = self._config_of(image.topic)
            log = self._log(image)
            waits = log is not None and log.last_stable < log.high_watermark
            if log is not None and waits and question.about is not About.PRODUCE:
                held += 1
                if held <= found.HELD_MAX:
                    log = log._replace(holder=self._holder(image))
            name = TopicPartition(image.topic, image.index)
            own = min(config["min.insync.replicas"], max(1, image.replication_factor))
            partitions.append(
                found.Partition(
                    name, image.leader, image.replicas, image.isr, needed_in_sync(own, image),
                    tuple(node for node in image.replicas if node not in self._image.brokers),
                    self._impaired.since(name), log,
                    None if committed is None else committed.get(name),
                )
            )  # fmt: skip
            if number % _STEP == 0:
                let_go_of_gil()
        return self._named(partitions)

    def _config_of(self, topic: str) -> TopicConfig:
        image = self._image.topic(topic)
        return TopicConfig(self._services.config, None if image is None else image.configs)

    def _log(self, image: PartitionImage) -> found.Log | None:
        replica = self._parts.replicas().get(TopicPartition(image.topic, image.index))
        if image.leader != self._parts.node_id or replica is None or not replica.online:
            return None
        # The offset that may only rise is read first.
        last_stable = replica.last_stable_offset
        start, high_watermark = replica.log_start_offset, replica.high_watermark
        return found.Log(start, replica.log_end_offset, high_watermark, last_stable)

    def _writes(
        self, about: About, partitions: Iterable[found.Partition], group: found.Group | None
    ) -> Iterator[found.Write]:
        """Those that hang: of all logs, or of those in question and of the group's."""
        replicas = self._parts.replicas()
        names = [each.name for each in partitions]
        if group is not None and group.records is not None:
            names.append(group.records)
        wanted = replicas if about is About.SLOW else names
        for number, name in enumerate(wanted, start=1):
            replica = replicas.get(name)
            ms = 0 if replica is None else replica.writing_ms
            if replica is not None and ms >= found.WRITE_MS_MIN:
                yield found.Write(name, replica.log.directory.rpartition("/")[0], ms)
            if number % _STEP == 0:
                let_go_of_gil()

    def _holder(self, image: PartitionImage) -> found.Holder | None:
        replica = self._parts.replicas().get(TopicPartition(image.topic, image.index))
        is_open = [] if replica is None else open_transactions(replica)
        if not is_open:
            return None
        return found.Holder(
            is_open[0].producer_id, is_open[0].producer_epoch, is_open[0].first_offset
        )

    def _named(self, partitions: list[found.Partition]) -> tuple[found.Partition, ...]:
        """With the transactional ids of the transactions that hold them, and since when."""
        held = {
            each.log.holder.producer_id
            for each in partitions
            if each.log is not None and each.log.holder is not None
        }
        if not held:
            return tuple(partitions)
        now_ms = self._clock.wall_ms()
        transactions = self._parts.transactions
        holders = [] if transactions is None else transactions.holders()
        since = {each.partition: now_ms - round(1000 * each.open_s) for each in holders}
        known = dict(self._transactions(held))
        return tuple(_with_holder(each, known, since) for each in partitions)

    def _transactions(self, producers: set[int]) -> Iterator[tuple[int, found.Holder]]:
        """Of those that this broker coordinates: the transaction of each producer id."""
        from kbroker.coordinator.txn.states import UNFINISHED

        transactions = self._parts.transactions
        coordinator = None
        if transactions is not None and transactions.made is not None:
            coordinator = transactions.made.coordinator
        for piece in () if coordinator is None else coordinator.pieces():
            for name, transaction in piece:
                image = transaction.image if transaction.state in UNFINISHED else None
                if image is None or image.producer_id not in producers:
                    continue
                client = transaction.client
                yield image.producer_id, found.Holder(
                    image.producer_id, image.epoch, -1, name, image.state.label, image.start_ms,
                    "" if client is None else f"{client.client_id} at {client.client_host}",
                )  # fmt: skip
            let_go_of_gil()

    # --- batches and quotas -----------------------------------------------------------------------

    def _too_large(self, question: Question, topics: Iterable[TopicImage]) -> found.TooLarge | None:
        size = question.batch_bytes
        if size is None:
            return None
        for topic in topics:
            config = self._config_of(topic.name)
            most = config[MESSAGE_BYTES]
            if size > most:
                is_own = MESSAGE_BYTES in topic.configs
                setting = MESSAGE_BYTES if is_own else "message.max.bytes"
                source = f"topic {topic.name}" if is_own else config.source(MESSAGE_BYTES).name
                return found.TooLarge(size, most, setting, source)
        broker = self._services.config
        most = broker[REQUEST_BYTES]
        if size <= most:
            return None
        return found.TooLarge(size, most, REQUEST_BYTES, broker.source(REQUEST_BYTES).name)

    def _throttles(self, question: Question) -> Iterator[found.Throttle]:
        """The quotas that are exceeded, of the clients in question. The use of a quota that was
        changed is counted on, with the bound that it had."""
        quotas, kinds = self._services.quotas, _CHARGED[question.about]
        if quotas is None or not kinds:
            return
        in_force = {pair for _, own in self._image.all_quotas() for pair in own.items()}
        for figure in quotas.figures(_FIGURES_MAX):
            kind, user, client_id, most, used, tokens, delayed, delay_ms = figure
            is_over = tokens < 0 if kind == _MUTATION else used > most
            is_one = kind in kinds and (_QUOTAS[kind], most) in in_force
            if is_over and is_one and _is_of(question, user, client_id):
                yield found.Throttle(kind, user, client_id, most, used, delayed, delay_ms)


def _chosen(question: Question, topics: Iterable[TopicImage]) -> list[PartitionImage]:
    """The partitions in question: those without a leader and with replicas missing first."""
    headless: list[PartitionImage] = []
    lacking: list[PartitionImage] = []
    whole: list[PartitionImage] = []
    for topic in topics:
        for each in topic.partitions:
            if question.partition not in (-1, each.index):
                continue
            if each.leader == NO_LEADER:
                headless.append(each)
            elif len(each.isr) < each.replication_factor:
                lacking.append(each)
            else:
                whole.append(each)
        let_go_of_gil()
    return headless + lacking + whole


def _is_of(question: Question, user: str | None, client_id: str | None) -> bool:
    """Whether the use may be that of the principal and the client in question."""
    wanted = None if question.principal is None else question.principal.partition(":")[2]
    return all(
        own in (None, "") or asked in (None, own)
        for own, asked in ((user, wanted), (client_id, question.client_id))
    )


def _with_holder(
    each: found.Partition,
    known: Mapping[int, found.Holder],
    since: Mapping[TopicPartition, int],
) -> found.Partition:
    if each.log is None or each.log.holder is None:
        return each
    holder = each.log.holder
    named = known.get(holder.producer_id)
    if named is None:
        holder = holder._replace(since_ms=since.get(each.name))
    else:
        holder = named._replace(
            producer_epoch=holder.producer_epoch, first_offset=holder.first_offset
        )
    return each._replace(log=each.log._replace(holder=holder))
