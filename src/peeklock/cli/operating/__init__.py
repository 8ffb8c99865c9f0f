"""What operators ask and do: how a broker is, its dead letters, the story of a message."""
