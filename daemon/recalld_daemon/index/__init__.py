"""Vectors and token vectors of one snapshot: a cache of what the store holds; the only room that imports faiss."""

from recalld_daemon.index.faiss_index import FaissIndex
from recalld_daemon.index.interface import IndexState, VectorIndex
from recalld_daemon.index.lane import DenseLane
from recalld_daemon.index.opening import agree, learn, open_index

__all__ = ["DenseLane", "FaissIndex", "IndexState", "VectorIndex", "agree", "learn", "open_index"]
