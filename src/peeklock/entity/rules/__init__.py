"""The rules of subscriptions: what a filter takes and what an action makes of it; pure."""
