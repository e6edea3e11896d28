"""Commands of `populora` that need no Prefect."""
