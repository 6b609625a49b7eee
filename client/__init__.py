"""Clients of a served store, with the faces of an opened one: several processes on one path, or a server elsewhere."""
