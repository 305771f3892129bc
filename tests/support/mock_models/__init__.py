"""Loopback stand-ins for models' APIs: the real agent programs talk to them, and what they sent can be looked at.

A test writes a script in neutral words (`Say`, `Call`); `dialects` turns a step of it into what one API would stream;
`server` is the only file with a socket. Ids count up, so that two runs of one script send the same bytes.
"""

from mock_models.script import Call, Say, Script, Step
from mock_models.server import Asked, MockModel

__all__ = ["Asked", "Call", "MockModel", "Say", "Script", "Step"]
