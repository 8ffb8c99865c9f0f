"""Administration: entities made, changed, listed and deleted as ATOM documents over HTTP."""
