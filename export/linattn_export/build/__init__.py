"""A build: writes every artifact, has them judged, records it, and swaps the folder in."""
