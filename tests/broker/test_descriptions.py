"""The catalog's texts: what was written is read again, and older texts are read too."""

from dataclasses import fields

from peeklock.auth.rights import development_rule
from peeklock.broker.descriptions import read_queue, write_queue
from peeklock.entity.definition import SEND_DISABLED, QueueDefinition


def test_every_property_of_a_queue_is_kept() -> None:
    definition = QueueDefinition(
        "orders",
        lock_duration_ms=5_000,
        delivery_count_max=3,
        time_to_live_ms=60_000,
        dead_letter_on_expiration=True,
        message_size_max=2_048,
        size_max=1 << 30,
        batched_store_access=False,
        requires_session=True,
        duplicate_window_ms=20_000,
        forward_to="next",
        forward_dead_letters_to="graves",
        auto_delete_ms=300_000,
        partitions=4,
        unlock_on_disconnect=True,
        status=SEND_DISABLED,
        user_metadata="noted",
    )
    plain = QueueDefinition("other")
    same = [
        field.name
        for field in fields(definition)
        if getattr(definition, field.name) == getattr(plain, field.name)
    ]
    assert same == [], "each property differs from its default, so that none is forgotten"
    rule = development_rule()
    assert read_queue(write_queue(definition, [rule])) == (definition, [rule])


def test_a_text_without_the_newer_properties_gives_their_defaults() -> None:
    assert read_queue('{"path":"orders"}') == (QueueDefinition("orders"), [])
