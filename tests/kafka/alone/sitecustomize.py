"""Each consumer alone in a group of its own, so that all have all partitions: in every Python that finds this first."""

import os
from typing import Any

import confluent_kafka


class _Alone(confluent_kafka.Consumer):
    def __init__(self, settings: dict[str, Any], **options: Any) -> None:
        super().__init__({**settings, "group.id": f"{settings['group.id']}-{os.getpid()}"}, **options)


confluent_kafka.Consumer = _Alone  # type: ignore[misc]
