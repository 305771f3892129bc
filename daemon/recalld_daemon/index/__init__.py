"""What is searched in memory: a cache of what the store holds, and the only room that imports faiss.

Vectors and token vectors belong to one snapshot of one encoder; words and cards (the catalogue) need no encoder; what
was extracted (facts, subjects, times) has both.
"""

from recalld_daemon.index.cards import CardTable
from recalld_daemon.index.catalogue import Catalogue, CatalogueState
from recalld_daemon.index.catalogue_opening import agree as agree_catalogue
from recalld_daemon.index.catalogue_opening import open_catalogue
from recalld_daemon.index.extracts import Extracts, ExtractsState
from recalld_daemon.index.faiss_index import FaissIndex
from recalld_daemon.index.interface import IndexState, VectorIndex
from recalld_daemon.index.lane import DenseLane
from recalld_daemon.index.opening import agree, learn, open_index
from recalld_daemon.index.verify import finds_nearest, holds_all
from recalld_daemon.index.words import WordIndex

__all__ = [
    "CardTable",
    "Catalogue",
    "CatalogueState",
    "DenseLane",
    "Extracts",
    "ExtractsState",
    "FaissIndex",
    "IndexState",
    "VectorIndex",
    "WordIndex",
    "agree",
    "agree_catalogue",
    "finds_nearest",
    "holds_all",
    "learn",
    "open_catalogue",
    "open_index",
]
