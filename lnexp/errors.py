"""The one exception for what a person can put right: the cli prints it as one line and exits with 2."""


class UserError(Exception):
    """Name the thing that is wrong, then the mend: "schedule.warmup_updates=-1: need >= 0 (0 = no warm-up)"."""
