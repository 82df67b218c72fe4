"""Share groups (KIP-932): what their members get, and how long an acknowledgement takes."""
