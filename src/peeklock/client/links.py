"""The two ends of a link: one that sends and one that receives."""

from peeklock.client.receiving import ReceiverLink as ReceiverLink
from peeklock.client.sending import SenderLink as SenderLink
