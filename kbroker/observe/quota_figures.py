"""Samples of quotas: their use by clients, and the time that clients had to wait.

Names and labels are those that the rules of the JMX exporter's example make of Apache Kafka's
(`kafka.server:type=Produce,user=...,client-id=...`). A client may choose any number of ids, so only
the quotas that were used last have samples.

For the Observer; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.limits import QUOTA_SAMPLES_MAX

if TYPE_CHECKING:
    from kbroker.handlers.services import Services
    from kbroker.metrics.model import LabelValues, Sample
    from kbroker.observe.traffic_figures import Samples

# By the kind of a quota: Kafka's type, and what its rate is called.
_OF_KIND: Final = {
    "produce": ("Produce", "quota_byte_rate"),
    "fetch": ("Fetch", "quota_byte_rate"),
    "request": ("Request", "quota_request_time"),
    "mutation": ("ControllerMutation", "quota_mutation_rate"),
}


def samples(services: Services | None) -> Samples:
    found: dict[str, list[Sample]] = {key: [] for _, key in _OF_KIND.values()}
    found |= {"quota_tokens": [], "quota_throttle_time": []}
    quotas = None if services is None else services.quotas
    for figure in [] if quotas is None else quotas.figures(QUOTA_SAMPLES_MAX):
        kind, user, client, _, rate, tokens, throttles, throttle_ms = figure
        resource, key = _OF_KIND[kind]
        labels: LabelValues = (resource, user or "", client or "")
        found[key].append((labels, rate))
        if kind == "mutation":
            found["quota_tokens"].append((labels, tokens))
        if throttles:
            found["quota_throttle_time"].append((labels, throttle_ms / throttles))
    return found
