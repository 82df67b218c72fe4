"""Consumer groups: who is a member, who has which partition, and how far each group has read."""
