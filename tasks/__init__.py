"""One Prefect task a stage: a thin wrapper round the core's `run_stage`."""
