"""What is wrong with a request, said by whoever reads it."""


class MalformedRequest(Exception):
    """A request that cannot be carried out as it is; the text is a sentence for its sender."""
