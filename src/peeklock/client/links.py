"""The two ends of a link: one that sends and one that receives."""

from peeklock.client.receiving.receiver_link import ReceiverLink as ReceiverLink
from peeklock.client.sending.sender_link import SenderLink as SenderLink
