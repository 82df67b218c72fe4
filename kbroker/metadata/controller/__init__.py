"""The controller's public face; what each name means stands in the file it comes from."""

from kbroker.metadata.controller.controller import Controller, ControllerStatistics, Settings
from kbroker.metadata.controller.decisions import (
    USE_DEFAULT,
    ConfigChange,
    NewTopic,
    TopicResult,
)
from kbroker.metadata.controller.producer_ids import ProducerIdBlock, ProducerIdManager

__all__ = [
    "USE_DEFAULT",
    "ConfigChange",
    "Controller",
    "ControllerStatistics",
    "NewTopic",
    "ProducerIdBlock",
    "ProducerIdManager",
    "Settings",
    "TopicResult",
]
