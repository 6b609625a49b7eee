"""The list of all mutants."""

from __future__ import annotations

from typing import Final

from tests.mutants import (
    of_alone,
    of_checkpoint,
    of_clock,
    of_crash,
    of_deaths,
    of_dedup,
    of_engine,
    of_exports,
    of_figures,
    of_followers,
    of_lanes,
    of_later,
    of_limits,
    of_log,
    of_owner,
    of_pauses,
    of_recovery,
    of_replication,
    of_results,
    of_resync,
    of_retries,
    of_seats,
    of_shared,
    of_spark_streams,
    of_store,
    of_strangers,
)
from tests.mutants.mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *of_log.MUTANTS,
    *of_recovery.MUTANTS,
    *of_checkpoint.MUTANTS,
    *of_engine.MUTANTS,
    *of_store.MUTANTS,
    *of_later.MUTANTS,
    *of_clock.MUTANTS,
    *of_dedup.MUTANTS,
    *of_deaths.MUTANTS,
    *of_limits.MUTANTS,
    *of_alone.MUTANTS,
    *of_lanes.MUTANTS,
    *of_results.MUTANTS,
    *of_shared.MUTANTS,
    *of_owner.MUTANTS,
    *of_pauses.MUTANTS,
    *of_retries.MUTANTS,
    *of_exports.MUTANTS,
    *of_figures.MUTANTS,
    *of_spark_streams.MUTANTS,
    *of_replication.MUTANTS,
    *of_followers.MUTANTS,
    *of_resync.MUTANTS,
    *of_crash.MUTANTS,
    *of_strangers.MUTANTS,
    *of_seats.MUTANTS,
)
