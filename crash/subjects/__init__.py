"""Subjects: other stores, and programs of users, that the bench crashes in the same way as tidelog."""
