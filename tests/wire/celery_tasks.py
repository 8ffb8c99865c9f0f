"""An application as its users write it: Celery with Kombu's transport for Service Bus."""

import os

from celery import Celery  # type: ignore[import-untyped]  # it has no types

app = Celery(
    "tasks", broker=os.environ["CELERY_TEST_BROKER"], backend=os.environ["CELERY_TEST_RESULTS"]
)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"wait_time_seconds": 1, "retry_total": 1},
    task_acks_late=True,
)


@app.task(bind=True, max_retries=3)  # type: ignore[untyped-decorator]  # it has no types
def add(self: object, left: int, right: int) -> int:
    """Add two numbers."""
    return left + right
