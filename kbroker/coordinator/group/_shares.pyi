from array import array

def share_out_alike(members: int, owners: array[int]) -> None: ...
def share_in_ranges(
    partitions: array[int],
    subscriptions: array[int],
    subscribed: array[int],
    owners: array[int],
) -> None: ...
def share_out(
    partitions: array[int],
    subscriptions: array[int],
    subscribed: array[int],
    owners: array[int],
) -> None: ...
