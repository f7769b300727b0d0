"""The store: a Parquet dataset of trials and plans, safe for any number of writers, readable by any tool."""

from tunefarm.store.output import FORMATS, readable, write_table
from tunefarm.store.parts import Damage
from tunefarm.store.plans import StoredPlan
from tunefarm.store.proposals import StoredProposal
from tunefarm.store.schema import VIEWS
from tunefarm.store.store import Store

__all__ = ["FORMATS", "VIEWS", "Damage", "Store", "StoredPlan", "StoredProposal", "readable", "write_table"]
