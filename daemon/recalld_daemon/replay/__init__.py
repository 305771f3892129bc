"""Replaying recorded sessions through the real client: what would have come to mind, and in time?"""
