"""The rule language of subscriptions."""
