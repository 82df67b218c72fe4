"""The cost of a follower's round: a follower in a process of its own, whose leader is played."""
