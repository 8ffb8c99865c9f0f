"""An application as its users write it: Celery with Kombu's transport for Service Bus."""

import os

from celery import Celery

app = Celery("tasks", broker=os.environ["TASKS_BROKER"], backend=os.environ["TASKS_RESULTS"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"wait_time_seconds": 1, "retry_total": 1},
    task_acks_late=True,
)


@app.task(max_retries=3)
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right
